#include "core/augment/draw.h"

#include <gtest/gtest.h>

#include <cmath>

namespace headrace {
namespace {

Draw DrawWith(const std::vector<Transform>& transforms, uint64_t seed, uint64_t epoch,
              uint64_t position, int width, int height) {
  Recipe recipe;
  recipe.transforms = transforms;
  Draw draw;
  DrawSample(recipe, seed, epoch, position, width, height, &draw);
  return draw;
}

const RandomResizedCrop kTrainCrop = {.height = 224, .width = 224};
const RandomCrop kCifarCrop = {.height = 32, .width = 32, .padding = {4, 4, 4, 4}};

// The table of docs/order.md, made with tests/conformance/draw_reference.py.
struct Golden {
  uint64_t seed, epoch, position;
  Rect landscape, portrait;
  bool flip;
  int top, left;  // of kCifarCrop
};
const Golden kGolden[] = {
    {0, 0, 0, {82, 44, 292, 336}, {45, 5, 455, 356}, false, 3, -4},
    {0, 0, 1, {7, 86, 324, 345}, {14, 29, 403, 322}, false, 1, -4},
    {1, 0, 0, {49, 24, 316, 254}, {152, 12, 316, 254}, true, -1, -3},
    {0, 1, 0, {58, 137, 314, 348}, {175, 25, 314, 348}, false, 0, 2},
    {42, 7, 123456, {63, 206, 307, 235}, {177, 109, 307, 235}, false, 3, 1},
    {~uint64_t{0},
     0xffffffff,
     (uint64_t{1} << 40) + 5,
     {34, 117, 323, 352},
     {114, 18, 323, 352},
     true,
     1,
     1},
};

TEST(DrawSample, GivesTheGoldenVectors) {
  for (const Golden& golden : kGolden) {
    const auto draw = [&](std::vector<Transform> transforms, int width, int height) {
      return DrawWith(transforms, golden.seed, golden.epoch, golden.position, width, height);
    };
    const Draw landscape = draw({kTrainCrop, RandomHorizontalFlip{}}, 500, 375);
    EXPECT_EQ(landscape.crop, golden.landscape);
    EXPECT_TRUE(landscape.has_flip);
    EXPECT_EQ(landscape.flip, golden.flip);
    EXPECT_EQ(draw({kTrainCrop}, 375, 500).crop, golden.portrait);
    EXPECT_EQ(draw({kTrainCrop}, 2000, 100).crop, (Rect{0, 933, 100, 133}));
    EXPECT_EQ(draw({kCifarCrop}, 32, 32).crop, (Rect{golden.top, golden.left, 32, 32}));
  }
}

TEST(DrawSample, MakesTheStepsInOrder) {
  const Draw draw =
      DrawWith({kTrainCrop, RandomVerticalFlip{.p = 1}, CenterCrop{200, 100}}, 0, 0, 0, 500, 375);
  ASSERT_EQ(draw.steps.size(), 4);
  EXPECT_EQ(std::get<CropStep>(draw.steps[0]).rect, (Rect{82, 44, 292, 336}));
  EXPECT_EQ(std::get<ResizeStep>(draw.steps[1]).height, 224);
  EXPECT_TRUE(std::holds_alternative<VerticalFlipStep>(draw.steps[2]));
  EXPECT_EQ(std::get<CropStep>(draw.steps[3]).rect, (Rect{12, 62, 200, 100}));
  EXPECT_TRUE(draw.has_vflip && draw.vflip);
  EXPECT_FALSE(draw.has_flip);
}

TEST(DrawSample, LeavesOutStepsThatChangeNothing) {
  EXPECT_TRUE(
      DrawWith({CenterCrop{30, 40}, Resize{.shorter_side = 30}}, 0, 0, 0, 40, 30).steps.empty());
}

TEST(DrawSample, ForgetsTheSampleBefore) {
  Recipe recipe;
  recipe.transforms = {kTrainCrop, RandomHorizontalFlip{.p = 1}};
  Draw draw;
  DrawSample(recipe, 0, 0, 0, 500, 375, &draw);
  recipe.transforms = {RandomCrop{.height = 50, .width = 50}};
  DrawSample(recipe, 0, 0, 0, 40, 40, &draw);
  EXPECT_FALSE(draw.error.empty());
  EXPECT_FALSE(draw.has_crop);
  EXPECT_FALSE(draw.has_flip);
  DrawSample(recipe, 0, 0, 0, 50, 50, &draw);
  EXPECT_TRUE(draw.error.empty());
  EXPECT_TRUE(draw.steps.empty());
}

TEST(DrawSample, GivesSamplesEpochsAndTransformsNumbersOfTheirOwn) {
  const Draw draw = DrawWith({kCifarCrop}, 5, 6, 7, 64, 64);
  int different = 0;
  different += DrawWith({kCifarCrop}, 4, 6, 7, 64, 64).crop != draw.crop;
  different += DrawWith({kCifarCrop}, 5, 7, 7, 64, 64).crop != draw.crop;
  different += DrawWith({kCifarCrop}, 5, 6, 8, 64, 64).crop != draw.crop;
  different += DrawWith({RandomHorizontalFlip{}, kCifarCrop}, 5, 6, 7, 64, 64).crop != draw.crop;
  EXPECT_EQ(different, 4);
}

TEST(DrawSample, SpreadsPlacesEvenlyAndReachesBothEnds) {
  constexpr int kDraws = 90000;
  std::array<int, 9> tops = {}, lefts = {};
  for (uint64_t position = 0; position < kDraws; ++position) {
    const Rect crop = DrawWith({kCifarCrop}, 11, 0, position, 32, 32).crop;
    ++tops[static_cast<size_t>(crop.top + 4)];
    ++lefts[static_cast<size_t>(crop.left + 4)];
  }
  double chi_square = 0;
  for (int count : tops) chi_square += std::pow(count - kDraws / 9.0, 2) / (kDraws / 9.0);
  for (int count : lefts) chi_square += std::pow(count - kDraws / 9.0, 2) / (kDraws / 9.0);
  EXPECT_LT(chi_square, 39.3);  // 16 degrees of freedom: 0.1 % lie above
}

TEST(DrawSample, CoversScalesAndRatiosAsAsked) {
  constexpr int kDraws = 20000;
  double area = 0, log_ratio = 0, log_ratio_square = 0;
  for (uint64_t position = 0; position < kDraws; ++position) {
    // A scale so small that every first try fits.
    const RandomResizedCrop crop = {.height = 8, .width = 8, .scale_min = 0.1, .scale_max = 0.5};
    const Rect rect = DrawWith({crop}, 3, 0, position, 4000, 4000).crop;
    area += double{1} * rect.height * rect.width / 16e6 / kDraws;
    const double ratio = std::log(double{1} * rect.width / rect.height);
    log_ratio += ratio / kDraws;
    log_ratio_square += ratio * ratio / kDraws;
  }
  const double half = std::log(4.0 / 3.0);
  EXPECT_NEAR(area, 0.3, 0.003);     // uniform: its deviation is 0.0008
  EXPECT_NEAR(log_ratio, 0, 0.005);  // log-uniform in ± 0.288: deviation 0.0012
  EXPECT_NEAR(log_ratio_square, half * half / 3, 0.001);  // deviation 0.0002
}

TEST(DrawSample, RefusesAResizeWithoutBounds) {
  EXPECT_NE(DrawWith({Resize{.shorter_side = 16384}}, 0, 0, 0, 1, 1 << 20).error, "");
}

}  // namespace
}  // namespace headrace
