#include "core/augment/render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "core/augment/aligned.h"
#include "core/augment/horizontal_table.h"
#include "core/augment/resize.h"
#include "core/augment/simd_target.h"
#include "core/decode/image_decoder.h"
#include "core/decode/probe.h"
#include "core/decode/segment/segment_decoder.h"
#include "tests/augment/simd_targets.h"
#include "tests/support/jpeg_maker.h"

// Equality with Pillow and torchvision: tests/conformance/test_render_transforms.py.

namespace headrace {
namespace {

struct File {
  std::vector<uint8_t> bytes;
  ImageInfo info;
};

File MakeFile(std::mt19937& random, int height, int width, int orientation = 1) {
  const testing::JpegOptions options = {
      .width = width, .height = height, .sampling = {"4:2:0", {2, 1, 1}, {2, 1, 1}}, .quality = 90};
  File file = {testing::MakeJpeg(options, &random), {}};
  const absl::StatusOr<ImageInfo> info = ProbeImage(file.bytes);
  EXPECT_TRUE(info.ok()) << info.status();
  file.info = *info;
  file.info.orientation = static_cast<uint8_t>(orientation);  // as if EXIF had said so
  return file;
}

// The steps one after another on the whole image, the plainest way.
RgbImage Reference(const File& file, const std::vector<Step>& steps) {
  ImageDecoder decoder;
  RgbImage stored, image;
  const Rect whole = {0, 0, static_cast<int>(file.info.height), static_cast<int>(file.info.width)};
  EXPECT_TRUE(decoder.Decode(file.bytes, file.info, whole, &stored, nullptr).ok());
  ApplyOrientation(stored, file.info.orientation, &image);
  for (const Step& step : steps) {
    RgbImage next;
    if (const auto* resize = std::get_if<ResizeStep>(&step)) {
      next.Resize(resize->width, resize->height);
      const ResizeJob job = {image.height,          image.width,
                             resize->height,        resize->width,
                             resize->interpolation, {0, 0, resize->height, resize->width}};
      Resizer().Run(
          job, image, {0, 0, image.height, image.width}, [&](int row, const uint8_t* planes) {
            for (int i = 0; i < 3 * resize->width; ++i) {
              next.row(row)[i] = planes[static_cast<size_t>(i % 3) * PlaneStride(resize->width) +
                                        static_cast<size_t>(i / 3)];
            }
          });
    } else {
      const auto* crop = std::get_if<CropStep>(&step);
      const Rect rect = crop != nullptr ? crop->rect : Rect{0, 0, image.height, image.width};
      next.Resize(rect.width, rect.height);
      for (int y = 0; y < rect.height; ++y) {
        for (int x = 0; x < rect.width; ++x) {
          int from_y = y + rect.top, from_x = x + rect.left;
          if (std::holds_alternative<HorizontalFlipStep>(step)) from_x = image.width - 1 - x;
          if (std::holds_alternative<VerticalFlipStep>(step)) from_y = image.height - 1 - y;
          const bool inside =
              from_y >= 0 && from_x >= 0 && from_y < image.height && from_x < image.width;
          for (size_t c = 0; c < 3; ++c)
            next.row(y)[3 * x + c] = inside ? image.row(from_y)[3 * from_x + c] : crop->fill[c];
        }
      }
    }
    image = next;
  }
  return image;
}

std::vector<Step> RandomSteps(std::mt19937& random) {
  const auto up_to = [&](int n) {
    return 1 + static_cast<int>(random() % static_cast<unsigned>(n));
  };
  std::vector<Step> steps;
  for (int n = up_to(5); n > 0; --n) {
    switch (random() % 6) {
      case 0:
        steps.push_back(HorizontalFlipStep{});
        break;
      case 1:
        steps.push_back(VerticalFlipStep{});
        break;
      case 2:
        steps.push_back(ResizeStep{up_to(90), up_to(90), static_cast<Interpolation>(random() % 6)});
        break;
      case 3:
        steps.push_back(
            CropStep{{up_to(60) - 40, up_to(60) - 40, up_to(90), up_to(90)}, {1, 2, 3}});
        break;
      case 4:
        steps.push_back(CropStep{{up_to(300), up_to(300), up_to(20), up_to(20)}, {9, 8, 7}});
        break;
      default:
        steps.push_back(CropStep{{up_to(9), up_to(9), up_to(9), up_to(9)}, {0, 0, 0}});
    }
  }
  return steps;
}

TEST(SampleRenderer, GivesWhatTheStepsGiveOnTheWholeImageOnEveryTarget) {
  OnEveryTarget([&](const std::string& target) {
    std::mt19937 random(11);
    SampleRenderer renderer;
    Recipe recipe;
    recipe.dtype = DType::kUInt8;
    recipe.memory_format = MemoryFormat::kChannelsLast;
    for (int round = 0; round < 250; ++round) {
      const File file = MakeFile(random, 1 + random() % 120, 1 + random() % 120, 1 + random() % 8);
      Draw draw;
      draw.steps = RandomSteps(random);
      const RgbImage expected = Reference(file, draw.steps);
      const size_t bytes = expected.stride() * static_cast<size_t>(expected.height);
      std::vector<uint8_t> out(bytes, 0xA5);
      const absl::Status status =
          renderer.Render(file.bytes, file.info, recipe, draw, out.data(), nullptr);
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(std::memcmp(out.data(), expected.pixels.data(), bytes), 0)
          << target << ", round " << round;
    }
  });
}

// Large enough for stores past the caches, at every place an element may have.
TEST(SampleRenderer, WritesEveryElementAndNothingElseAtAnyPlace) {
  std::mt19937 random(12);
  const File file = MakeFile(random, 301, 233);
  SampleRenderer renderer;
  for (DType dtype : {DType::kUInt8, DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    for (MemoryFormat format : {MemoryFormat::kContiguous, MemoryFormat::kChannelsLast}) {
      for (int width : {224, 219}) {
        Recipe recipe;
        recipe.dtype = dtype;
        recipe.memory_format = format;
        Draw draw;
        draw.steps = {ResizeStep{256, width, Interpolation::kBilinear}, HorizontalFlipStep{}};
        const size_t element = static_cast<size_t>(DTypeBytes(dtype));
        const size_t bytes = 3 * 256 * static_cast<size_t>(width) * element;
        std::vector<uint8_t> first;
        for (size_t offset = 0; offset < 3; ++offset) {
          // Twice on different backgrounds: what was not written would show.
          std::vector<uint8_t> results[2];
          for (uint8_t background : {0x00, 0xff}) {
            AlignedVector<uint8_t> memory(bytes + 256, background);
            uint8_t* out = memory.data() + 64 + offset * element;
            ASSERT_TRUE(renderer.Render(file.bytes, file.info, recipe, draw, out, nullptr).ok());
            for (const uint8_t* p = memory.data(); p < out; ++p) ASSERT_EQ(*p, background);
            for (const uint8_t* p = out + bytes; p < memory.data() + memory.size(); ++p)
              ASSERT_EQ(*p, background);
            results[background & 1].assign(out, out + bytes);
          }
          ASSERT_EQ(results[0], results[1]);
          if (first.empty()) first = results[0];
          ASSERT_EQ(results[0], first) << "offset " << offset;
        }
      }
    }
  }
}

TEST(SampleRenderer, ReportsADrawThatDoesNotFit) {
  std::mt19937 random(13);
  const File file = MakeFile(random, 20, 10);
  Draw draw;
  draw.error = "too small";
  uint8_t out = 7;
  const absl::Status status =
      SampleRenderer().Render(file.bytes, file.info, Recipe{}, draw, &out, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()), "too small");
  EXPECT_EQ(out, 7);
}

TEST(SampleRenderer, ReportsBytesThatAreNoImageAndGoesOn) {
  std::mt19937 random(14);
  const File file = MakeFile(random, 64, 64);
  Recipe recipe;
  recipe.dtype = DType::kUInt8;
  Draw draw;
  std::vector<uint8_t> out(3 * 64 * 64);
  SampleRenderer renderer;
  const std::vector<uint8_t> garbage(1000, 0x55);
  EXPECT_EQ(renderer.Render(garbage, file.info, recipe, draw, out.data(), nullptr).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(renderer.Render(file.bytes, file.info, recipe, draw, out.data(), nullptr).ok());
}

TEST(SampleRenderer, RefusesStepsWhoseImagesFitInNoMemory) {
  std::mt19937 random(15);
  const File file = MakeFile(random, 16, 16);
  Draw draw;
  draw.steps = {ResizeStep{1 << 28, 1 << 10, Interpolation::kBilinear},
                ResizeStep{4, 4, Interpolation::kBilinear}};
  std::vector<uint8_t> out(3 * 4 * 4 * 4);
  const absl::Status status =
      SampleRenderer().Render(file.bytes, file.info, Recipe{}, draw, out.data(), nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("would make an image of 268435456 x 1024 px"));
}

TEST(SimdTarget, NamesAnActualTarget) {
  std::vector<std::string> names;
  OnEveryTarget([&](const std::string& target) { names.push_back(target); });
  EXPECT_THAT(names, ::testing::Contains(SimdTarget()));
  const std::string best = SimdTarget();
  LimitIsa(Isa::kPortable);
  EXPECT_THAT(SimdTarget(), ::testing::AnyOf("SCALAR", "EMU128"));
  EXPECT_EQ(SimdTarget(), SegmentDecoderTarget());
  LimitIsa(Isa::kSse4);
  EXPECT_NE(SimdTarget(), "AVX2");
  EXPECT_NE(SimdTarget(), "AVX3");
  EXPECT_NE(SimdTarget(), "AVX3_DL");
  LimitIsa(Isa::kBest);
  EXPECT_EQ(SimdTarget(), best);
  EXPECT_EQ(DTypeBytes(DType::kBFloat16), 2);
}

}  // namespace
}  // namespace headrace
