#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/augment/render.h"
#include "tests/augment/random_recipe.h"
#include "tests/augment/simd_targets.h"
#include "tests/support/indexed_files.h"

// Samples from entry points against the same samples through libjpeg: every bit must be the same.

namespace headrace {
namespace {

using testing::IndexedFiles;
using testing::IndexedJpeg;
using testing::kEntryIntervals;
using testing::RandomRecipe;

constexpr int kParts = 8;
constexpr int kCropsOfAPart = 2500 / TEST_SLOWDOWN;

class EntryRender : public ::testing::TestWithParam<int> {
 protected:
  const IndexedJpeg& Image(size_t number, int interval) {
    auto& image = images_[{number, interval}];
    if (!image) {
      image = std::make_unique<IndexedJpeg>();
      EXPECT_TRUE(image->Make(IndexedFiles()[number], interval));
    }
    return *image;
  }
  // A renderer for each target and number of streams.
  SampleRenderer* Renderer(const std::string& target, int streams) {
    auto& renderer = renderers_[{target, streams}];
    if (!renderer) renderer = std::make_unique<SampleRenderer>(streams);
    return renderer.get();
  }

  std::map<std::pair<size_t, int>, std::unique_ptr<IndexedJpeg>> images_;
  std::map<std::pair<std::string, int>, std::unique_ptr<SampleRenderer>> renderers_;
};

TEST_P(EntryRender, GivesLibjpegsPixelsAndFloatsOnEveryTarget) {
  std::mt19937 random(static_cast<unsigned>(1000 + GetParam()));
  SampleRenderer libjpeg;
  Draw draw;
  int crops = 0;
  for (uint64_t position = 0; crops < kCropsOfAPart; ++position) {
    const IndexedJpeg& image = Image(random() % IndexedFiles().size(), kEntryIntervals[random() % 4]);
    const int streams = 1 + static_cast<int>(random() % 4);
    ImageInfo info = image.info;
    if (random() % 3 == 0)
      info.orientation = static_cast<uint8_t>(1 + random() % 8);  // as if EXIF had said so
    const Recipe recipe = RandomRecipe(&random).Make();
    DrawSample(recipe, 7, 0, position, static_cast<int>(info.oriented_width()),
               static_cast<int>(info.oriented_height()), &draw);
    if (!draw.error.empty()) continue;
    ++crops;
    const auto size = recipe.OutputSize();
    ASSERT_TRUE(size.ok()) << size.status();
    const size_t bytes =
        static_cast<size_t>(3 * (*size)[0] * (*size)[1] * DTypeBytes(recipe.dtype));
    std::vector<uint8_t> expected(bytes, 0x5A), got(bytes);
    ASSERT_TRUE(libjpeg.Render(image.file, info, recipe, draw, expected.data(), nullptr).ok());
    const EntryView view = image.View();
    bool whole = false;
    const auto read = [&](uint64_t begin,
                          uint64_t end) -> absl::StatusOr<absl::Span<const uint8_t>> {
      whole |= begin == 0;  // segments begin behind the header
      return absl::MakeConstSpan(image.file).subspan(begin, end - begin);
    };
    OnEveryTarget([&](const std::string& target) {
      std::fill(got.begin(), got.end(), uint8_t{0xA5});
      const EncodedImage encoded = {&info, image.file.size(), read, &view, &image.frame};
      const absl::Status status =
          Renderer(target, streams)->Render(encoded, recipe, draw, got.data(), nullptr);
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_FALSE(whole) << target << ", position " << position
                          << ": not decoded from its entry points";
      ASSERT_EQ(std::memcmp(expected.data(), got.data(), bytes), 0)
          << target << ", position " << position << ", " << info.width << " x " << info.height
          << ", " << streams << " streams";
    });
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Crops, EntryRender, ::testing::Range(0, kParts));

// Without a hash that says so, damage shows only where it is decoded.
TEST(EntryRender, DamagedDataGivesLibjpegsPixelsOrTheUndamagedOnes) {
  constexpr uint64_t kDamagedImages = 3000 / TEST_SLOWDOWN;
  std::mt19937 random(31);
  SampleRenderer renderer, libjpeg;
  Recipe recipe;
  recipe.dtype = DType::kUInt8;
  recipe.transforms = {RandomResizedCrop{.height = 32, .width = 32}};
  int damaged = 0, undamaged = 0;
  for (uint64_t position = 0; position < kDamagedImages; ++position) {
    IndexedJpeg image;
    ASSERT_TRUE(image.Make(IndexedFiles()[random() % IndexedFiles().size()], kEntryIntervals[random() % 4]));
    if (image.file.size() > 60000) continue;
    std::vector<uint8_t> good(3 * 32 * 32), expected(good.size()), got(good.size());
    Draw draw;
    const bool whole_image = position % 2 == 0;
    DrawSample(recipe, 8, 0, position, static_cast<int>(image.info.oriented_width()),
               static_cast<int>(image.info.oriented_height()), &draw);
    if (whole_image) draw.steps = {ResizeStep{32, 32}};
    ASSERT_TRUE(renderer.Render(image.file, image.info, recipe, draw, good.data(), nullptr).ok());
    for (uint64_t flips = 1 + random() % 3; flips > 0; --flips) {
      const size_t at =
          image.frame.scan_offset + random() % (image.file.size() - image.frame.scan_offset);
      image.file[at] = static_cast<uint8_t>(image.file[at] ^ 1u << random() % 8);
    }
    const EntryView view = image.View();
    const auto read = [&](uint64_t begin,
                          uint64_t end) -> absl::StatusOr<absl::Span<const uint8_t>> {
      return absl::MakeConstSpan(image.file).subspan(begin, end - begin);
    };
    const absl::Status reference =
        libjpeg.Render(image.file, image.info, recipe, draw, expected.data(), nullptr);
    const absl::Status status =
        renderer.Render({&image.info, image.file.size(), read, &view, &image.frame}, recipe, draw,
                        got.data(), nullptr);
    if (whole_image) {
      ASSERT_EQ(status.code(), reference.code()) << status << " / " << reference;
      ASSERT_TRUE(!status.ok() || got == expected) << "position " << position;
      ++damaged;
    } else if (status.ok()) {
      damaged += got == expected;
      undamaged += got == good;
    } else {
      ASSERT_FALSE(reference.ok()) << status;
    }
  }
  EXPECT_GT(damaged, kDamagedImages / 6);
  EXPECT_GT(undamaged, kDamagedImages / 30);
}

}  // namespace
}  // namespace headrace
