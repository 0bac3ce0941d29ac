#include "core/augment/geometry.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(RoundHalf, RoundsHalvesToEven) {
  const int expected[] = {-2, -2, -2, -1, 0, 0,
                          0,  1,  2,  2,  2};  // Python's round(n / 2) for n = -5 … 5
  for (int n = -5; n <= 5; ++n) EXPECT_EQ(RoundHalf(n), expected[n + 5]) << n;
}

TEST(ResizedSize, TruncatesTheLongerSide) {
  EXPECT_EQ(ResizedSize({.shorter_side = 256}, 375, 500), (std::array<int64_t, 2>{256, 341}));
  EXPECT_EQ(ResizedSize({.shorter_side = 256}, 500, 375), (std::array<int64_t, 2>{341, 256}));
  EXPECT_EQ(ResizedSize({.shorter_side = 256}, 100, 100), (std::array<int64_t, 2>{256, 256}));
  EXPECT_EQ(ResizedSize({.height = 10, .width = 20}, 500, 375), (std::array<int64_t, 2>{10, 20}));
}

TEST(ResizedSize, BoundsTheLongerSide) {
  EXPECT_EQ(ResizedSize({.shorter_side = 256, .max_size = 300}, 375, 500),
            (std::array<int64_t, 2>{225, 300}));
  EXPECT_EQ(ResizedSize({.shorter_side = 256, .max_size = 300}, 1, 5000),
            (std::array<int64_t, 2>{1, 300}));
}

TEST(CenterCropRect, ReachesOutsideASmallerImage) {
  EXPECT_EQ(CenterCropRect({3, 3}, 6, 8), (Rect{2, 2, 3, 3}));
  EXPECT_EQ(CenterCropRect({8, 4}, 5, 10), (Rect{-1, 3, 8, 4}));
}

}  // namespace
}  // namespace headrace
