#include "packer/ordered_blocks.h"

#include <gmock/gmock.h>

#include <set>

namespace headrace {
namespace {

using Range = std::pair<uint64_t, uint64_t>;

TEST(OrderedBlocks, ResultsComeInOrderWhateverTheThreads) {
  for (int threads : {1, 2, 8}) {
    for (uint64_t count : {0, 1, 9, 10, 11, 995}) {
      const std::atomic<bool> stop = false;
      std::vector<Range> ranges;
      OrderedBlocks<Range>(
          count, 10, threads, stop,
          [&](uint64_t first, uint64_t end, int thread) {
            EXPECT_GE(thread, 0);
            EXPECT_LT(thread, threads);
            if (first % 30 == 0) std::this_thread::yield();
            return Range(first, end);
          },
          [&](Range&& range) { ranges.push_back(range); });
      uint64_t next = 0;
      for (const Range& range : ranges) {
        EXPECT_EQ(range.first, next);
        EXPECT_LE(range.second - range.first, 10u);
        next = range.second;
      }
      EXPECT_EQ(next, count) << threads << " threads";
    }
  }
}

TEST(OrderedBlocks, StopEndsItEarly) {
  std::atomic<bool> stop = false;
  uint64_t consumed = 0;
  OrderedBlocks<int>(
      1 << 20, 1, 4, stop, [](uint64_t, uint64_t, int) { return 0; },
      [&](int&&) {
        if (++consumed == 100) stop = true;
      });
  EXPECT_GE(consumed, 100u);
  EXPECT_LT(consumed, 1000u);
}

}  // namespace
}  // namespace headrace
