#include "core/augment/pack.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "core/augment/filter.h"
#include "core/augment/horizontal_table.h"
#include "core/augment/resize_kernels.h"
#include "tests/augment/simd_targets.h"

namespace headrace {
namespace {

constexpr uint8_t kPoison = 0xA5;
constexpr size_t kGuard = 64;

// All 256 pixels in all three channels, each plane in another order.
constexpr int kWidth = 256;
std::vector<uint8_t> AllPixels() {
  std::vector<uint8_t> planes(3 * PlaneStride(kWidth) + kRowPadding);
  for (size_t c = 0; c < 3; ++c) {
    for (size_t x = 0; x < kWidth; ++x)
      planes[c * PlaneStride(kWidth) + x] = static_cast<uint8_t>(x * (2 * c + 1) + c);
  }
  return planes;
}

size_t ElementBytes(DType dtype) {
  return dtype == DType::kUInt8 ? 1 : dtype == DType::kFloat32 ? 4 : 2;
}

// One row of `width` pixels packed as the only row of an output, which starts `offset` elements
// into its memory.
std::vector<uint8_t> Pack(const Recipe& recipe, const std::vector<uint8_t>& planes, int width,
                          size_t offset) {
  const size_t element = ElementBytes(recipe.dtype);
  const size_t bytes = 3 * static_cast<size_t>(width) * element;
  std::vector<uint8_t> memory(kGuard + offset * element + bytes + kGuard, kPoison);
  uint8_t* out = memory.data() + kGuard + offset * element;
  PackRow(MakePackPlan(recipe), {planes.data(), PlaneStride(width)}, 0, 1, width, out);
  FinishPacking();
  for (const uint8_t* p = memory.data(); p < out; ++p)
    EXPECT_EQ(*p, kPoison) << "written before the row";
  for (const uint8_t* p = out + bytes; p < memory.data() + memory.size(); ++p)
    EXPECT_EQ(*p, kPoison) << "written behind the row";
  return {out, out + bytes};
}

template <typename T>
T Element(const std::vector<uint8_t>& packed, const Recipe& recipe, int width, size_t c, size_t x) {
  const size_t at = recipe.memory_format == MemoryFormat::kContiguous
                        ? c * static_cast<size_t>(width) + x
                        : 3 * x + c;
  T value;
  std::memcpy(&value, packed.data() + at * sizeof(T), sizeof(T));
  return value;
}

Recipe MakeRecipe(DType dtype, MemoryFormat format,
                  std::optional<Normalize> normalize = std::nullopt) {
  Recipe recipe;
  recipe.dtype = dtype;
  recipe.memory_format = format;
  recipe.normalize = normalize;
  return recipe;
}

Normalize RandomNormalize(std::mt19937& random) {
  std::uniform_real_distribution<double> exponent(-12, 3), mean(-3, 3);
  Normalize normalize;
  for (size_t c = 0; c < 3; ++c) {
    normalize.mean[c] = mean(random) * std::exp2(exponent(random));
    normalize.std[c] = std::exp2(exponent(random));
  }
  return normalize;
}

TEST(PackRow, IsOneFusedMultiplyAddForAllPixelsOnEveryTarget) {
  const std::vector<uint8_t> planes = AllPixels();
  OnEveryTarget([&](const std::string& target) {
    std::mt19937 random(1);
    for (int round = 0; round < 300; ++round) {
      const Normalize n = round == 0 ? Normalize{} : RandomNormalize(random);
      for (MemoryFormat format : {MemoryFormat::kContiguous, MemoryFormat::kChannelsLast}) {
        const Recipe recipe = MakeRecipe(DType::kFloat32, format, n);
        const std::vector<uint8_t> packed = Pack(recipe, planes, kWidth, 0);
        for (size_t c = 0; c < 3; ++c) {
          const float a = static_cast<float>(1.0 / (255.0 * n.std[c]));
          const float b = static_cast<float>(-n.mean[c] / n.std[c]);
          for (size_t x = 0; x < kWidth; ++x) {
            const float expected =
                std::fma(static_cast<float>(planes[c * PlaneStride(kWidth) + x]), a, b);
            ASSERT_EQ(Element<float>(packed, recipe, kWidth, c, x), expected)
                << target << " round " << round;
          }
        }
      }
    }
  });
}

TEST(PackRow, DividesBy255WithoutErrorOnEveryTarget) {
  const std::vector<uint8_t> planes = AllPixels();
  OnEveryTarget([&](const std::string& target) {
    const Recipe recipe = MakeRecipe(DType::kFloat32, MemoryFormat::kContiguous);
    const std::vector<uint8_t> packed = Pack(recipe, planes, kWidth, 0);
    for (size_t c = 0; c < 3; ++c) {
      for (size_t x = 0; x < kWidth; ++x) {
        ASSERT_EQ(Element<float>(packed, recipe, kWidth, c, x),
                  planes[c * PlaneStride(kWidth) + x] / 255.0f)
            << target;
      }
    }
  });
}

TEST(PackRow, RoundsTheFloatToSixteenBitsOnEveryTarget) {
  const std::vector<uint8_t> planes = AllPixels();
  OnEveryTarget([&](const std::string& target) {
    std::mt19937 random(2);
    for (int round = 0; round < 100; ++round) {
      const std::optional<Normalize> n =
          round == 0 ? std::nullopt : std::optional(RandomNormalize(random));
      for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
        const Recipe recipe = MakeRecipe(
            dtype, round % 2 == 0 ? MemoryFormat::kContiguous : MemoryFormat::kChannelsLast, n);
        const Recipe full = MakeRecipe(DType::kFloat32, recipe.memory_format, n);
        const std::vector<uint8_t> packed = Pack(recipe, planes, kWidth, 0);
        const std::vector<uint8_t> floats = Pack(full, planes, kWidth, 0);
        for (size_t c = 0; c < 3; ++c) {
          for (size_t x = 0; x < kWidth; ++x) {
            const float value = Element<float>(floats, full, kWidth, c, x);
            const uint16_t expected =
                dtype == DType::kFloat16 ? Float16Bits(value) : BFloat16Bits(value);
            ASSERT_EQ(Element<uint16_t>(packed, recipe, kWidth, c, x), expected)
                << target << " " << value;
          }
        }
      }
    }
  });
}

// The value of float16 or bfloat16 bits, in double.
double ValueOf(uint16_t bits, bool bfloat16) {
  const int fraction_bits = bfloat16 ? 7 : 10;
  const int bias = bfloat16 ? 127 : 15;
  const int exponent = (bits & 0x7fff) >> fraction_bits;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                    : std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

// Every sixteen-bit number, the middle between it and the next, and the floats around that middle.
TEST(SixteenBits, RoundToNearestAndHalvesToEven) {
  for (bool bfloat16 : {false, true}) {
    const auto convert = bfloat16 ? BFloat16Bits : Float16Bits;
    const uint16_t greatest = bfloat16 ? 0x7f7f : 0x7bff;
    for (uint16_t bits = 0; bits < greatest; ++bits) {
      const double low = ValueOf(bits, bfloat16);
      const double high = ValueOf(static_cast<uint16_t>(bits + 1), bfloat16);
      const auto middle = static_cast<float>((low + high) / 2);  // exact
      const uint16_t even = (bits & 1) == 0 ? bits : static_cast<uint16_t>(bits + 1);
      ASSERT_EQ(convert(static_cast<float>(low)), bits);
      ASSERT_EQ(convert(middle), even);
      ASSERT_EQ(convert(std::nextafter(middle, 0.0f)), bits);
      ASSERT_EQ(convert(std::nextafter(middle, std::numeric_limits<float>::infinity())), bits + 1);
      ASSERT_EQ(convert(-middle), even | 0x8000);
    }
  }
  EXPECT_EQ(Float16Bits(65519.996f), 0x7bff);
  EXPECT_EQ(Float16Bits(65520.0f), 0x7c00);
  EXPECT_EQ(Float16Bits(-1e30f), 0xfc00);
}

TEST(PackRow, WritesExactlyItsElementsAtAnyWidthAndPlace) {
  std::mt19937 random(3);
  OnEveryTarget([&](const std::string& target) {
    for (DType dtype : {DType::kUInt8, DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
      for (MemoryFormat format : {MemoryFormat::kContiguous, MemoryFormat::kChannelsLast}) {
        for (int width = 1; width < 70; ++width) {
          std::vector<uint8_t> planes(3 * PlaneStride(width) + kRowPadding);
          for (uint8_t& byte : planes) byte = static_cast<uint8_t>(random());
          const Recipe recipe = MakeRecipe(dtype, format);
          const PackPlan plan = MakePackPlan(recipe);
          const std::vector<uint8_t> packed = Pack(recipe, planes, width, random() % 5);
          for (size_t c = 0; c < 3; ++c) {
            for (size_t x = 0; x < static_cast<size_t>(width); ++x) {
              const uint8_t pixel = planes[c * PlaneStride(width) + x];
              if (dtype == DType::kUInt8) {
                ASSERT_EQ(Element<uint8_t>(packed, recipe, width, c, x), pixel)
                    << target << " " << width;
              } else if (dtype == DType::kFloat32) {
                ASSERT_EQ(Element<float>(packed, recipe, width, c, x), plan.float32[c][pixel])
                    << target << " " << width;
              } else {
                ASSERT_EQ(Element<uint16_t>(packed, recipe, width, c, x), plan.float16[c][pixel])
                    << target << " " << width;
              }
            }
          }
        }
      }
    }
  });
}

TEST(PackPlan, BelongsToEqualRecipesOnly) {
  const Recipe recipe = MakeRecipe(DType::kFloat16, MemoryFormat::kContiguous, Normalize{});
  const PackPlan plan = MakePackPlan(recipe);
  EXPECT_TRUE(IsPlanFor(plan, recipe));
  Recipe other = recipe;
  other.normalize->mean[2] = 0.5;
  EXPECT_FALSE(IsPlanFor(plan, other));
  other.normalize.reset();
  EXPECT_FALSE(IsPlanFor(plan, other));
  EXPECT_FALSE(
      IsPlanFor(plan, MakeRecipe(DType::kBFloat16, MemoryFormat::kContiguous, Normalize{})));
  EXPECT_FALSE(
      IsPlanFor(plan, MakeRecipe(DType::kFloat16, MemoryFormat::kChannelsLast, Normalize{})));
}

// The vertical pass and packing in one against the two steps, which other tests compare with the
// formula.
TEST(PackBlendedRow, IsBlendingAndThenPackingOnEveryTarget) {
  std::mt19937 random(31);
  int taken = 0;
  for (int round = 0; round < 300; ++round) {
    const int width = 1 + static_cast<int>(random() % 70),
              taps = 1 + static_cast<int>(random() % 9);
    const size_t lanes = PlaneStride(width), element = 4;
    Recipe recipe;
    recipe.dtype = static_cast<DType>(1 + round % 3);
    recipe.memory_format = static_cast<MemoryFormat>(round / 3 % 2);
    if (round % 5 != 0) recipe.normalize = Normalize{};
    const PackPlan plan = MakePackPlan(recipe);
    const bool overshoots = round % 4 == 0;
    std::vector<int32_t> weights(static_cast<size_t>(taps)), spread_weights(weights.size());
    int32_t left = 1 << kWeightBits;
    for (size_t t = 0; t + 1 < weights.size(); ++t) {
      weights[t] = static_cast<int32_t>(random() % static_cast<unsigned>(left / 2 + 1)) *
                   (overshoots && t == 0 ? -1 : 1);
      left -= weights[t];
    }
    weights.back() = left;
    for (size_t t = 0; t < weights.size(); ++t) spread_weights[t] = SpreadWeight(weights[t]);
    AlignedVector<uint8_t> bytes(3 * lanes), blended(3 * lanes + kRowPadding);
    AlignedVector<int32_t> spread(3 * lanes * static_cast<size_t>(taps));
    std::vector<const int32_t*> rows;
    OnEveryTarget([&](const std::string& target) {
      const ResizeKernels& kernels = ActiveResizeKernels();
      std::mt19937 pixels(static_cast<unsigned>(round));
      rows.clear();
      for (size_t t = 0; t < weights.size(); ++t) {
        for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(pixels());
        kernels.spread_row(bytes.data(), lanes, lanes, spread.data() + 3 * lanes * t);
        rows.push_back(spread.data() + 3 * lanes * t);
      }
      const int32_t bias = BlendBias(1 << kWeightBits);
      const size_t out_bytes = 3 * static_cast<size_t>(width) * element * 2;  // two rows
      AlignedVector<uint8_t> expected(out_bytes, 0x77), got(out_bytes, 0x77);
      kernels.blend_rows(rows.data(), spread_weights.data(), taps, bias, 3 * lanes, blended.data());
      PackRow(plan, {blended.data(), lanes}, 1, 2, width, expected.data());
      const BlendedRow row = {rows.data(), spread_weights.data(), taps, bias, lanes, overshoots};
      const bool packed = PackBlendedRow(plan, row, 1, 2, width, got.data());
      taken += packed;
      if (!packed) expected.assign(out_bytes, 0x77);
      ASSERT_EQ(got, expected) << target << ", width " << width << ", " << taps << " taps";
    });
  }
  // On targets with a fused multiply-add.
  if (ActiveResizeKernels().lanes >= 8) {
    EXPECT_GT(taken, 200);
  }
}

}  // namespace
}  // namespace headrace
