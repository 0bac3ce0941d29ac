// Huffman codes one at a time, for what look-up tables do not hold.
#pragma once

#include <array>
#include <cstdint>

#include "core/decode/entry/jpeg_frame.h"

namespace headrace {

// Canonical decoding (T.81, F.2.2.3) with codes left-aligned in 16 bits, so that a length is found by comparing alone.
class CanonicalCodes {
 public:
  // `spec` is usable (IsUsableHuffmanSpec).
  void Build(const HuffmanSpec& spec) {
    uint32_t code = 0;
    int32_t index = 0;
    for (size_t bits = 1; bits <= 16; ++bits) {
      offset_[bits] = index - static_cast<int32_t>(code);
      code += spec.counts[bits - 1];
      index += spec.counts[bits - 1];
      limit_[bits] = code << (16 - bits);
      code <<= 1;
    }
    symbols_ = spec.symbols;
  }

  // Length of the code at the head of 16 bits, and its symbol; 0 if there is no such code.
  int Decode(uint32_t head, uint8_t* symbol) const {
    int bits = 1;  // without a branch: lengths are hard to predict
    for (size_t longer = 1; longer <= 16; ++longer) bits += head >= limit_[longer];
    if (bits > 16) return 0;
    *symbol = symbols_[((head >> (16 - bits)) + static_cast<uint32_t>(offset_[static_cast<size_t>(bits)])) & 255];
    return bits;
  }

  // By length of a code. limit: the first code that is longer. offset: of a code's symbol from the code.
  const std::array<uint32_t, 17>& limit() const { return limit_; }
  const std::array<int32_t, 17>& offset() const { return offset_; }

 private:
  std::array<uint32_t, 17> limit_ = {};
  std::array<int32_t, 17> offset_ = {};
  std::array<uint8_t, 256> symbols_ = {};
};

}  // namespace headrace
