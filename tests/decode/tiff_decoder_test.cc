#include "core/decode/tiff/tiff_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tiffio.h>

#include <random>
#include <string>

#include "core/base/file.h"
#include "tests/decode/regions.h"
#include "tests/support/temporary_folder.h"

namespace headrace {
namespace {

using testing::PixelsOf;
using testing::RandomRegion;
using ::testing::HasSubstr;

constexpr int kTiffWidth = 53, kTiffHeight = 37;

struct TiffKind {
  uint16_t compression, planar;
  bool tiled;
};

// RGB noise of 8 bits in strips of 5 rows or tiles of 16 × 16.
std::vector<uint8_t> MakeTiff(const TiffKind& kind, std::vector<uint8_t>* pixels) {
  std::mt19937 random(1);
  pixels->clear();
  for (int i = 0; i < 3 * kTiffWidth * kTiffHeight; ++i) pixels->push_back(static_cast<uint8_t>(random() % 100));
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/picture.tif";
  TIFF* file = TIFFOpen(path.c_str(), "w");
  TIFFSetField(file, TIFFTAG_IMAGEWIDTH, kTiffWidth);
  TIFFSetField(file, TIFFTAG_IMAGELENGTH, kTiffHeight);
  TIFFSetField(file, TIFFTAG_BITSPERSAMPLE, 8);
  TIFFSetField(file, TIFFTAG_SAMPLESPERPIXEL, 3);
  TIFFSetField(file, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_RGB);
  TIFFSetField(file, TIFFTAG_PLANARCONFIG, kind.planar);
  TIFFSetField(file, TIFFTAG_COMPRESSION, kind.compression);
  const int planes = kind.planar == PLANARCONFIG_SEPARATE ? 3 : 1, samples = 3 / planes;
  const int width = kind.tiled ? 16 : kTiffWidth, height = kind.tiled ? 16 : 5;
  if (kind.tiled) {
    TIFFSetField(file, TIFFTAG_TILEWIDTH, width);
    TIFFSetField(file, TIFFTAG_TILELENGTH, height);
  } else {
    TIFFSetField(file, TIFFTAG_ROWSPERSTRIP, height);
  }
  uint32_t piece = 0;
  for (int plane = 0; plane < planes; ++plane) {
    for (int top = 0; top < kTiffHeight; top += height) {
      for (int left = 0; left < kTiffWidth; left += width, ++piece) {
        const int rows = kind.tiled ? height : std::min(height, kTiffHeight - top);
        std::vector<uint8_t> data(static_cast<size_t>(width * rows * samples));
        for (int y = top; y < std::min(top + rows, kTiffHeight); ++y) {
          for (int x = left; x < std::min(left + width, kTiffWidth); ++x) {
            for (int sample = 0; sample < samples; ++sample) {
              data[static_cast<size_t>(((y - top) * width + x - left) * samples + sample)] =
                  (*pixels)[static_cast<size_t>((y * kTiffWidth + x) * 3 + plane + sample)];
            }
          }
        }
        const auto size = static_cast<tmsize_t>(data.size());
        EXPECT_GT((kind.tiled ? TIFFWriteEncodedTile : TIFFWriteEncodedStrip)(file, piece, data.data(), size), 0);
      }
    }
  }
  TIFFClose(file);
  const absl::StatusOr<std::string> content = ReadFile(path, 1 << 20);
  EXPECT_TRUE(content.ok());
  return {content->begin(), content->end()};
}

absl::Status DecodeTiffFile(const std::vector<uint8_t>& file, const Rect& region, RgbImage* out) {
  const absl::StatusOr<ImageInfo> info = ReadTiffHeader(file);
  if (!info.ok()) return info.status();
  std::vector<uint8_t> scratch;
  return DecodeTiff(file, *info, region, &scratch, out, nullptr);
}

class TiffDecoder : public ::testing::TestWithParam<TiffKind> {};

TEST_P(TiffDecoder, GivesBackThePixelsOfEveryRegion) {
  std::vector<uint8_t> pixels;
  const std::vector<uint8_t> file = MakeTiff(GetParam(), &pixels);
  RgbImage image;
  ASSERT_TRUE(DecodeTiffFile(file, {0, 0, kTiffHeight, kTiffWidth}, &image).ok());
  EXPECT_EQ(PixelsOf(image), pixels);
  std::mt19937 random(2);
  for (int i = 0; i < 30; ++i) {
    const Rect region = RandomRegion(&random, kTiffWidth, kTiffHeight);
    ASSERT_TRUE(DecodeTiffFile(file, region, &image).ok());
    for (int y = 0; y < region.height; ++y) {
      const uint8_t* expected = pixels.data() + 3 * ((region.top + y) * kTiffWidth + region.left);
      ASSERT_EQ(std::memcmp(image.row(y), expected, image.stride()), 0);
    }
  }
}

TEST_P(TiffDecoder, RefusesWhatIsCutOff) {
  std::vector<uint8_t> pixels;
  const std::vector<uint8_t> file = MakeTiff(GetParam(), &pixels);
  RgbImage image;
  // libtiff writes the directory behind the pixels.
  for (size_t size = 8; size + 40 < file.size(); size += 97) {
    EXPECT_FALSE(DecodeTiffFile({file.begin(), file.begin() + static_cast<ptrdiff_t>(size)}, {0, 0, kTiffHeight, kTiffWidth}, &image).ok()) << size;
  }
}

INSTANTIATE_TEST_SUITE_P(All, TiffDecoder,
                         ::testing::Values(TiffKind{COMPRESSION_NONE, PLANARCONFIG_CONTIG, false},
                                           TiffKind{COMPRESSION_NONE, PLANARCONFIG_SEPARATE, true},
                                           TiffKind{COMPRESSION_LZW, PLANARCONFIG_CONTIG, false},
                                           TiffKind{COMPRESSION_LZW, PLANARCONFIG_SEPARATE, false},
                                           TiffKind{COMPRESSION_ADOBE_DEFLATE, PLANARCONFIG_CONTIG, true},
                                           TiffKind{COMPRESSION_PACKBITS, PLANARCONFIG_SEPARATE, true}));

TEST(Tiff, NamesWhatIsNotSupported) {
  std::vector<uint8_t> pixels;
  std::vector<uint8_t> file = MakeTiff({COMPRESSION_NONE, PLANARCONFIG_CONTIG, false}, &pixels);
  // The entry of the compression: tag 259, u16, one.
  const std::string entry("\x03\x01\x03\0\x01\0\0\0", 8);
  const auto at = std::search(file.begin(), file.end(), entry.begin(), entry.end());
  ASSERT_NE(at, file.end());
  at[8] = static_cast<uint8_t>(COMPRESSION_OJPEG);
  EXPECT_THAT(std::string(ReadTiffHeader(file).status().message()), HasSubstr("compression 6 is not supported"));
}

TEST(Tiff, NeedsNoLengthsOfWhatIsNotCompressed) {
  for (const bool tiled : {false, true}) {
    std::vector<uint8_t> pixels;
    std::vector<uint8_t> file = MakeTiff({COMPRESSION_NONE, PLANARCONFIG_CONTIG, tiled}, &pixels);
    const std::string entry = std::string(1, static_cast<char>(tiled ? TIFFTAG_TILEBYTECOUNTS & 255 : TIFFTAG_STRIPBYTECOUNTS & 255)) + "\x01";
    const auto at = std::search(file.end() - 300, file.end(), entry.begin(), entry.end());
    ASSERT_NE(at, file.end());
    at[1] = 0x7F;  // another tag, out of order
    RgbImage image;
    const absl::Status status = DecodeTiffFile(file, {0, 0, kTiffHeight, kTiffWidth}, &image);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(PixelsOf(image), pixels);
  }
}

}  // namespace
}  // namespace headrace
