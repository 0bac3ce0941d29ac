#include "core/decode/bmp/bmp_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/decode/regions.h"

namespace headrace {
namespace {

using testing::PixelsOf;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

void Put32(std::vector<uint8_t>* file, uint32_t value) {
  for (int i = 0; i < 4; ++i) file->push_back(static_cast<uint8_t>(value >> 8 * i));
}

std::vector<uint8_t> MakeBmp(int width, int height, uint16_t bits, uint32_t compression, const std::vector<uint8_t>& palette,
                             const std::vector<uint8_t>& data) {
  std::vector<uint8_t> file = {'B', 'M'};
  for (const uint32_t value : {0u, 0u, static_cast<uint32_t>(54 + palette.size()), 40u, static_cast<uint32_t>(width),
                               static_cast<uint32_t>(height), 1u | uint32_t{bits} << 16, compression, 0u, 0u, 0u,
                               static_cast<uint32_t>(palette.size() / 4), 0u}) {
    Put32(&file, value);
  }
  file.insert(file.end(), palette.begin(), palette.end());
  file.insert(file.end(), data.begin(), data.end());
  return file;
}

absl::Status DecodeBmpFile(const std::vector<uint8_t>& file, RgbImage* out) {
  const absl::StatusOr<ImageInfo> info = ReadBmpHeader(file);
  if (!info.ok()) return info.status();
  std::vector<uint8_t> scratch;
  return DecodeBmp(file, *info, {0, 0, static_cast<int>(info->height), static_cast<int>(info->width)}, &scratch, out);
}

TEST(BmpDecoder, ReadsRowsFromTheBottomAndFromTheTop) {
  const std::vector<uint8_t> data = {1, 2, 3, 4, 5, 6, 0, 0, 7, 8, 9, 10, 11, 12};  // the last row's padding is missing
  RgbImage image;
  ASSERT_TRUE(DecodeBmpFile(MakeBmp(2, 2, 24, 0, {}, data), &image).ok());
  EXPECT_THAT(PixelsOf(image), ElementsAreArray({9, 8, 7, 12, 11, 10, 3, 2, 1, 6, 5, 4}));
  ASSERT_TRUE(DecodeBmpFile(MakeBmp(2, -2, 24, 0, {}, data), &image).ok());
  EXPECT_THAT(PixelsOf(image), ElementsAreArray({3, 2, 1, 6, 5, 4, 9, 8, 7, 12, 11, 10}));
}

TEST(BmpDecoder, UndoesRunLengths) {
  const std::vector<uint8_t> palette = {1, 2, 3, 0, 4, 5, 6, 0};
  RgbImage image;
  // Three of colour 1; a literal of 1, 0, 1; a colour that the palette has not, cut at the end of the row.
  const std::vector<uint8_t> runs = {3, 1, 0, 0, 0, 3, 1, 0, 1, 0, 0, 0, 200, 9, 0, 1};
  ASSERT_TRUE(DecodeBmpFile(MakeBmp(3, -3, 8, 1, palette, runs), &image).ok());
  EXPECT_THAT(PixelsOf(image), ElementsAreArray({6, 5, 4, 6, 5, 4, 6, 5, 4, 6, 5, 4, 3, 2, 1, 6, 5, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(BmpDecoder, RefusesWhatIsCutOffAndWhatItDoesNotKnow) {
  const auto refusal = [](const std::vector<uint8_t>& file) {
    RgbImage image;
    return std::string(DecodeBmpFile(file, &image).message());
  };
  const std::vector<uint8_t> whole = MakeBmp(2, 2, 24, 0, {}, std::vector<uint8_t>(14));
  for (size_t size = 2; size < whole.size(); ++size) {
    EXPECT_EQ(refusal({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size)}), "BMP: the file is cut off") << size;
  }
  EXPECT_THAT(refusal(MakeBmp(2, 2, 24, 4, {}, {})), HasSubstr("compression 4 is not supported"));
  EXPECT_THAT(refusal(MakeBmp(2, 2, 2, 0, {}, {})), HasSubstr("2 bits per pixel are not supported"));
  EXPECT_THAT(refusal(MakeBmp(0, 2, 24, 0, {}, {})), HasSubstr("width or height is 0"));
  EXPECT_THAT(refusal(MakeBmp(2, 2, 8, 1, {1, 2, 3, 0}, {2, 0, 0, 1})), HasSubstr("end too early"));
  // 10,000 × 10,000 pixels of run lengths that are not there: nothing is made of them.
  EXPECT_THAT(refusal(MakeBmp(10000, 10000, 8, 1, {1, 2, 3, 0}, {2, 0})), HasSubstr("cut off"));
}

}  // namespace
}  // namespace headrace
