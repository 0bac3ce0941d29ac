#include "core/decode/webp/webp_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <webp/encode.h>

#include <random>
#include <string>

#include "tests/decode/regions.h"

namespace headrace {
namespace {

using testing::PixelsOf;
using testing::RandomRegion;

constexpr int kWebpWidth = 53, kWebpHeight = 37;

std::vector<uint8_t> WebpColours() {
  std::mt19937 random(1);
  std::vector<uint8_t> pixels(size_t{4} * kWebpWidth * kWebpHeight);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i / 9 + random() % 30);
  return pixels;
}

std::vector<uint8_t> TakeWebp(uint8_t* file, size_t size) {
  const std::vector<uint8_t> bytes(file, file + size);
  WebPFree(file);
  return bytes;
}

std::vector<uint8_t> LosslessWebp() {
  uint8_t* file = nullptr;
  const size_t size = WebPEncodeLosslessRGB(WebpColours().data(), kWebpWidth, kWebpHeight, 3 * kWebpWidth, &file);
  return TakeWebp(file, size);
}

std::vector<uint8_t> LossyWebp() {
  uint8_t* file = nullptr;
  const size_t size = WebPEncodeRGBA(WebpColours().data(), kWebpWidth, kWebpHeight, 4 * kWebpWidth, 50, &file);
  return TakeWebp(file, size);
}

absl::Status DecodeWebpFile(const std::vector<uint8_t>& file, const Rect& region, RgbImage* out) {
  const absl::StatusOr<ImageInfo> info = ReadWebpHeader(file);
  if (!info.ok()) return info.status();
  std::vector<uint8_t> scratch;
  return DecodeWebp(file, *info, region, &scratch, out);
}

TEST(WebpDecoder, GivesBackLosslessPictures) {
  RgbImage image;
  ASSERT_TRUE(DecodeWebpFile(LosslessWebp(), {0, 0, kWebpHeight, kWebpWidth}, &image).ok());
  const std::vector<uint8_t> colours = WebpColours();
  EXPECT_EQ(PixelsOf(image), std::vector<uint8_t>(colours.begin(), colours.begin() + 3 * kWebpWidth * kWebpHeight));
}

TEST(WebpDecoder, RegionsAreThoseOfTheWholePicture) {
  std::mt19937 random(2);
  const std::vector<uint8_t> file = LossyWebp();
  EXPECT_EQ(ReadWebpHeader(file)->components, 4);
  RgbImage whole, part;
  ASSERT_TRUE(DecodeWebpFile(file, {0, 0, kWebpHeight, kWebpWidth}, &whole).ok());
  for (int i = 0; i < 20; ++i) {
    const Rect region = RandomRegion(&random, kWebpWidth, kWebpHeight);
    ASSERT_TRUE(DecodeWebpFile(file, region, &part).ok());
    for (int y = 0; y < region.height; ++y) {
      ASSERT_EQ(std::memcmp(part.row(y), whole.row(region.top + y) + 3 * region.left, part.stride()), 0);
    }
  }
}

TEST(WebpDecoder, RefusesWhatIsCutOff) {
  for (const std::vector<uint8_t>& file : {LosslessWebp(), LossyWebp()}) {
    RgbImage image;
    for (size_t size = 16; size < file.size(); size += 7) {
      EXPECT_FALSE(DecodeWebpFile({file.begin(), file.begin() + static_cast<ptrdiff_t>(size)}, {0, 0, 1, 1}, &image).ok()) << size;
    }
  }
}

}  // namespace
}  // namespace headrace
