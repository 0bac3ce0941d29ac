#include "core/decode/gif/gif_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/decode/regions.h"

namespace headrace {
namespace {

using namespace std::string_literals;
using testing::PixelsOf;
using ::testing::ElementsAreArray;

// A screen of 3 × 2 with four colours, a frame of 2 × 1 in it at (1, 1) with the indices 1 and 3.
const std::string kGif =
    "GIF89a\x03\0\x02\0\x81\0\0" "abcdefghijkl" "!\xF9\x04\x01\0\0\x02\0" ",\x01\0\x01\0\x02\0\x01\0\0" "\x02\x02\xCC\x0A\0;"s;

absl::Span<const uint8_t> GifBytes(const std::string& file) { return {reinterpret_cast<const uint8_t*>(file.data()), file.size()}; }

absl::Status DecodeGifFile(const std::string& file, const Rect& region, RgbImage* out) {
  const absl::StatusOr<ImageInfo> info = ReadGifHeader(GifBytes(file));
  if (!info.ok()) return info.status();
  std::vector<uint8_t> scratch;
  return DecodeGif(GifBytes(file), *info, region, &scratch, out);
}

TEST(GifDecoder, PutsTheFirstFrameOnTheTransparentColour) {
  RgbImage image;
  ASSERT_TRUE(DecodeGifFile(kGif, {0, 0, 2, 3}, &image).ok());
  const std::string expected = "ghighighi" "ghidefjkl";
  EXPECT_THAT(PixelsOf(image), ElementsAreArray(expected.begin(), expected.end()));
  ASSERT_TRUE(DecodeGifFile(kGif, {1, 2, 1, 1}, &image).ok());
  EXPECT_THAT(PixelsOf(image), ElementsAreArray({'j', 'k', 'l'}));
}

TEST(GifDecoder, ReadsNoMoreThanTheRegionNeeds) {
  std::string damaged = kGif;
  damaged[damaged.size() - 4] = '\xFF';
  RgbImage image;
  EXPECT_TRUE(DecodeGifFile(damaged, {0, 0, 1, 3}, &image).ok());
  EXPECT_EQ(DecodeGifFile(damaged, {0, 0, 2, 3}, &image).message(), "GIF: the picture's data are broken");
}

TEST(GifDecoder, RefusesEveryFileThatIsCutOffBeforeItsLastPixel) {
  RgbImage image;
  for (size_t size = 6; size < kGif.size() - 2; ++size) EXPECT_FALSE(DecodeGifFile(kGif.substr(0, size), {0, 0, 2, 3}, &image).ok()) << size;
  EXPECT_TRUE(DecodeGifFile(kGif.substr(0, kGif.size() - 2), {0, 0, 2, 3}, &image).ok());
  EXPECT_EQ(DecodeGifFile("GIF89a\x03\0\x02\0\0\0\0;"s, {0, 0, 2, 3}, &image).message(), "GIF: no picture");
}

}  // namespace
}  // namespace headrace
