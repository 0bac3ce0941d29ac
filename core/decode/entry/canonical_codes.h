// Huffman codes one at a time, for what look-up tables do not hold.
#pragma once

#include <array>
#include <cstdint>

#include "core/decode/entry/code_limits.h"
#include "core/decode/entry/jpeg_frame.h"

namespace headrace {

// As code_limits.h says.
class CanonicalCodes {
 public:
  // `spec` is usable (IsUsableHuffmanSpec).
  void Build(const HuffmanSpec& spec) {
    FindCodeLimits(spec.counts, limit_, offset_);
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

 private:
  std::array<uint32_t, 17> limit_ = {};
  std::array<int32_t, 17> offset_ = {};
  std::array<uint8_t, 256> symbols_ = {};
};

}  // namespace headrace
