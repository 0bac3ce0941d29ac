// Reading ahead under shuffle="blocks": whole blocks, one piece of the disk each, a window before they are needed.
#pragma once

#include <cstdint>
#include <optional>

#include "core/batch/order.h"

namespace headrace {

// One session's. While the samples of one window are decoded in random order, the next window's blocks are read in the order in
// which they will be needed, at the same pace. The page cache holds them until then. Not thread-safe.
class BlockReadAhead {
 public:
  // Whether it pays: blocks are shuffled, two windows fit into half of `memory_bytes`, and all ranks of the run are served
  // here (`local_ranks`), so that every sample of a block is used on this node.
  static bool Fits(const SessionSpec& spec, int local_ranks, uint64_t memory_bytes);

  // The session's threads have come to `cursor`. At most `max_blocks` blocks are handed to the kernel; true: more are due. Rank r of
  // W takes every W-th block.
  bool Advance(const SessionSpec& spec, const Cursor& cursor, const EpochOrder& order, int max_blocks);

 private:
  void ReadBlock(const Dataset& dataset, const EpochOrder& order, uint64_t first_place, uint64_t places);

  std::optional<uint64_t> epoch_;
  uint64_t done_ = 0;  // places of the epoch in stored order
  SampleRow first_, last_;
};

// Mean bytes of a sample in the shards.
uint64_t MeanSampleBytes(const Dataset& dataset);

}  // namespace headrace
