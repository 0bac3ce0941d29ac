// Where the blocks of entropy-coded data end: one pass that reads codes and skips what they announce.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/decode/entry/jpeg_frame.h"

namespace headrace {

// Not thread-safe. Going from one symbol to the next is a chain that each waits for the one before, so one core could do four
// chains in the time of one. Huffman data allows it: decoding that begins at a wrong bit falls in step with the right one after
// some blocks, nearly always. So the data is cut into four parts that are walked at once, and the walk of each part is taken
// over from the block on that the walk of the part before it reaches too; until there, and where they never meet, blocks are
// walked one by one. What comes out is the same as from one walk from the beginning.
class ScanWalker {
 public:
  // `bytes` must be readable so far behind the data's end, and zero there.
  static constexpr size_t kSlackBytes = size_t{16} << 10;

  ScanWalker();
  ~ScanWalker();

  // Builds look-up tables for those that are not of the image before.
  void SetTables(const JpegFrame& frame);

  // Appends the bits at which the first `num_blocks` blocks end, and the differences of their DC coefficients. The first one
  // begins at bit `begin` of `bytes`, which hold no stuffed zeros and no markers up to bit `end`, below 2^31. False when a
  // code is undefined, a block has more than 64 coefficients, or the data ends too early.
  bool Walk(const uint8_t* bytes, uint64_t begin, uint64_t end, uint64_t num_blocks, std::vector<uint32_t>* ends,
            std::vector<int16_t>* dc_differences);

 private:
  struct Tables;
  std::unique_ptr<Tables> tables_;
};

}  // namespace headrace
