#include "core/augment/resize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "core/augment/portable_kernels.h"
#include "core/augment/resize_kernels.h"
#include "tests/augment/simd_targets.h"

// Equality with Pillow itself: tests/conformance/test_render_resize.py.

namespace headrace {
namespace {

RgbImage Noise(std::mt19937& random, int height, int width) {
  RgbImage image;
  image.Resize(width, height);
  const bool extremes = random() % 2 == 0;
  for (uint8_t& byte : image.pixels)
    byte = static_cast<uint8_t>(extremes ? -static_cast<int>(random() % 2) : random());
  return image;
}

int RandomSize(std::mt19937& random) {
  return std::max(
      1, static_cast<int>(std::exp2(std::uniform_real_distribution<double>(0, 8)(random))));
}

ResizeJob RandomJob(std::mt19937& random) {
  ResizeJob job;
  job.in_height = RandomSize(random);
  job.in_width = RandomSize(random);
  job.out_height = RandomSize(random);
  job.out_width = RandomSize(random);
  if (job.in_height == job.out_height && job.in_width == job.out_width) ++job.in_width;
  job.interpolation = static_cast<Interpolation>(random() % 6);
  job.window = {0, 0, job.out_height, job.out_width};
  return job;
}

std::vector<uint8_t> Resized(Resizer& resizer, const ResizeJob& job, const RgbImage& pixels,
                             const Rect& held) {
  std::vector<uint8_t> out;
  int expected_row = 0;
  resizer.Run(job, pixels, held, [&](int row, const uint8_t* planes) {
    EXPECT_EQ(row, expected_row++);
    for (int x = 0; x < job.window.width; ++x) {
      for (size_t c = 0; c < 3; ++c)
        out.push_back(planes[c * PlaneStride(job.window.width) + static_cast<size_t>(x)]);
    }
  });
  return out;
}

Rect WholeInput(const ResizeJob& job) { return {0, 0, job.in_height, job.in_width}; }

TEST(Resizer, GivesTheSameBytesOnEveryTarget) {
  std::vector<std::vector<uint8_t>> first;
  OnEveryTarget([&](const std::string& target) {
    std::mt19937 random(7);
    Resizer resizer;
    for (size_t round = 0; round < 400; ++round) {
      const ResizeJob job = RandomJob(random);
      const std::vector<uint8_t> out =
          Resized(resizer, job, Noise(random, job.in_height, job.in_width), WholeInput(job));
      if (first.size() == round) {
        first.push_back(out);
      } else {
        ASSERT_EQ(out, first[round]) << target << ", round " << round;
      }
    }
  });
}

TEST(Resizer, NeedsNoMoreThanItsSourceAndMirrors) {
  std::mt19937 random(8);
  Resizer resizer;
  for (int round = 0; round < 400; ++round) {
    ResizeJob job = RandomJob(random);
    const RgbImage whole = Noise(random, job.in_height, job.in_width);
    const std::vector<uint8_t> expected = Resized(resizer, job, whole, WholeInput(job));
    const int full_width = job.out_width;
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    job.window.top = below(job.out_height);
    job.window.left = below(job.out_width);
    job.window.height = 1 + below(job.out_height - job.window.top);
    job.window.width = 1 + below(job.out_width - job.window.left);
    job.mirrored = round % 2 == 0;
    const Rect source = ResizeSource(job);
    RgbImage part;
    part.Resize(source.width, source.height);
    for (int y = 0; y < source.height; ++y) {
      std::copy_n(whole.row(source.top + y) + 3 * source.left, 3 * source.width, part.row(y));
    }
    const std::vector<uint8_t> got = Resized(resizer, job, part, source);
    for (int y = 0; y < job.window.height; ++y) {
      for (int x = 0; x < job.window.width; ++x) {
        const int from_x = job.window.left + (job.mirrored ? job.window.width - 1 - x : x);
        for (int c = 0; c < 3; ++c) {
          ASSERT_EQ(
              got[static_cast<size_t>(3 * (y * job.window.width + x) + c)],
              expected[static_cast<size_t>(3 * ((job.window.top + y) * full_width + from_x) + c)])
              << "round " << round;
        }
      }
    }
  }
}

TEST(Resizer, KeepsAPlainPicturePlain) {
  Resizer resizer;
  std::mt19937 random(9);
  for (int round = 0; round < 60; ++round) {
    const ResizeJob job = RandomJob(random);
    RgbImage image;
    image.Resize(job.in_width, job.in_height);
    const auto grey = static_cast<uint8_t>(random());
    std::fill(image.pixels.begin(), image.pixels.end(), grey);
    for (uint8_t byte : Resized(resizer, job, image, WholeInput(job))) ASSERT_EQ(byte, grey);
  }
}

// Of the last plane too: the address sanitizer sees what is read behind it.
TEST(Resizer, StrongReductionsReadNoFurtherThanTheirRows) {
  std::mt19937 random(11);
  for (const Interpolation interpolation : {Interpolation::kBilinear, Interpolation::kBicubic, Interpolation::kLanczos}) {
    for (const int width : {1, 2, 5, 17}) {
      ResizeJob job;
      job.in_height = job.out_height = 3;
      job.in_width = 900;
      job.out_width = width;
      job.interpolation = interpolation;
      job.window = {0, 0, 3, width};
      const RgbImage image = Noise(random, job.in_height, job.in_width);
      std::vector<uint8_t> expected;
      OnEveryTarget([&](const std::string& target) {
        Resizer resizer;
        const std::vector<uint8_t> got = Resized(resizer, job, image, WholeInput(job));
        if (expected.empty()) expected = got;
        EXPECT_EQ(got, expected) << target << ", " << width;
      });
    }
  }
}

TEST(ResizeKernels, WithoutSimdAreTheSame) {
  std::mt19937 random(10);
  for (int round = 0; round < 200; ++round) {
    const ResizeJob job = RandomJob(random);
    if (job.in_width == job.out_width || job.interpolation == Interpolation::kNearest) continue;
    AxisFilter filter;
    HorizontalTable table;
    ComputeFilter(job.interpolation, job.in_width, job.out_width, {0, job.out_width}, &filter);
    const auto make_table = [&](size_t lanes, bool dots_of_bytes) {
      MakeHorizontalTable(filter, round % 2 == 0, 0, lanes, dots_of_bytes, &table);
    };
    make_table(4, false);
    const RgbImage image = Noise(random, 1, job.in_width);
    const size_t in_stride = PlaneStride(job.in_width);
    const size_t out_stride = PlaneStride(job.out_width);
    AlignedVector<uint8_t> planes(3 * in_stride + kRowPadding), bytes(3 * out_stride),
        blended(3 * out_stride);
    AlignedVector<int32_t> spread(3 * out_stride), spread_bytes(3 * out_stride);
    AlignedVector<uint8_t> expected_bytes = bytes, expected_blended = blended,
                           expected_mirrored = planes, mirrored = planes;
    AlignedVector<int32_t> expected_spread = spread;
    std::vector<uint8_t> merged(3 * static_cast<size_t>(job.in_width)), expected_merged = merged;
    portable::SplitRow(image.pixels.data(), job.in_width, planes.data());
    portable::MergeRow(planes.data(), in_stride, job.in_width, expected_merged.data());
    portable::MirrorRow(planes.data(), in_stride, job.in_width, expected_mirrored.data());
    portable::ResizeRow(table, planes.data(), in_stride, expected_bytes.data());
    portable::ResizeRowSpread(table, planes.data(), in_stride, expected_spread.data());
    const int32_t* rows[] = {expected_spread.data(), expected_spread.data(),
                             expected_spread.data()};
    const int32_t weights[] = {SpreadWeight(3000001), SpreadWeight(-600000), SpreadWeight(1794303)};
    portable::BlendRows(rows, weights, 3, BlendBias(1 << kWeightBits), 3 * out_stride,
                        expected_blended.data());
    OnEveryTarget([&](const std::string& target) {
      const ResizeKernels& kernels = ActiveResizeKernels();
      make_table(kernels.lanes, kernels.dots_of_bytes);
      AlignedVector<uint8_t> split(planes.size());
      kernels.split_row(image.pixels.data(), job.in_width, split.data());
      for (size_t c = 0; c < 3; ++c) {
        for (size_t x = 0; x < static_cast<size_t>(job.in_width); ++x) {
          ASSERT_EQ(split[c * in_stride + x], planes[c * in_stride + x]) << target;
        }
      }
      kernels.merge_row(planes.data(), in_stride, job.in_width, merged.data());
      kernels.mirror_row(planes.data(), in_stride, job.in_width, mirrored.data());
      kernels.resize_row(table, planes.data(), in_stride, bytes.data());
      kernels.resize_row_spread(table, planes.data(), in_stride, spread.data());
      kernels.spread_row(expected_bytes.data(), out_stride, out_stride, spread_bytes.data());
      kernels.blend_rows(rows, weights, 3, BlendBias(1 << kWeightBits), 3 * out_stride,
                         blended.data());
      ASSERT_EQ(merged, expected_merged) << target;
      ASSERT_EQ(mirrored, expected_mirrored) << target;
      ASSERT_EQ(blended, expected_blended) << target;
      for (size_t c = 0; c < 3; ++c) {  // behind the outputs anything may stand
        for (size_t i = c * out_stride; i < c * out_stride + static_cast<size_t>(job.out_width);
             ++i) {
          ASSERT_EQ(bytes[i], expected_bytes[i]) << target;
          ASSERT_EQ(spread[i], expected_spread[i]) << target;
          ASSERT_EQ(spread_bytes[i], expected_spread[i]) << target;
        }
      }
    });
  }
}

}  // namespace
}  // namespace headrace
