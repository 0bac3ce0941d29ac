#include "core/decode/png/png_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>

#include <random>
#include <string>
#include <vector>

#include "core/decode/png/png_header.h"
#include "tests/decode/regions.h"

namespace headrace {
namespace {

using testing::PixelsOf;
using testing::RandomRegion;
using ::testing::HasSubstr;

struct Kind {
  std::string name;
  int colour_type, bits;
  int channels() const {
    switch (colour_type) {
      case PNG_COLOR_TYPE_RGB:
        return 3;
      case PNG_COLOR_TYPE_GRAY_ALPHA:
        return 2;
      case PNG_COLOR_TYPE_RGB_ALPHA:
        return 4;
      default:
        return 1;
    }
  }
};

std::vector<Kind> AllKinds() {
  std::vector<Kind> kinds;
  for (const int bits : {1, 2, 4, 8, 16})
    kinds.push_back({"grey" + std::to_string(bits), PNG_COLOR_TYPE_GRAY, bits});
  for (const int bits : {1, 2, 4, 8}) {
    kinds.push_back({"palette" + std::to_string(bits), PNG_COLOR_TYPE_PALETTE, bits});
  }
  for (const int bits : {8, 16}) {
    const std::string text = std::to_string(bits);
    kinds.push_back({"rgb" + text, PNG_COLOR_TYPE_RGB, bits});
    kinds.push_back({"grey_alpha" + text, PNG_COLOR_TYPE_GRAY_ALPHA, bits});
    kinds.push_back({"rgba" + text, PNG_COLOR_TYPE_RGB_ALPHA, bits});
  }
  return kinds;
}

// A file and the samples in it, one number each.
struct PngFile {
  std::vector<uint8_t> file;
  std::vector<int> samples;
  std::vector<png_color> palette;
};

PngFile MakePng(const Kind& kind, int width, int height, bool interlaced, std::mt19937* random) {
  PngFile picture;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &picture.file,
      [](png_structp writer, png_bytep data, size_t size) {
        auto* file = static_cast<std::vector<uint8_t>*>(png_get_io_ptr(writer));
        file->insert(file->end(), data, data + size);
      },
      nullptr);
  png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height),
               kind.bits, kind.colour_type, interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (kind.colour_type == PNG_COLOR_TYPE_PALETTE) {
    for (int i = 0; i < 1 << kind.bits; ++i) {
      picture.palette.push_back({static_cast<png_byte>((*random)()),
                                 static_cast<png_byte>((*random)()),
                                 static_cast<png_byte>((*random)())});
    }
    png_set_PLTE(png, info, picture.palette.data(), static_cast<int>(picture.palette.size()));
  }
  png_write_info(png, info);
  const size_t row_samples = static_cast<size_t>(width) * static_cast<size_t>(kind.channels());
  const size_t row_bytes = (row_samples * static_cast<size_t>(kind.bits) + 7) / 8;
  std::vector<std::vector<uint8_t>> rows(static_cast<size_t>(height),
                                         std::vector<uint8_t>(row_bytes));
  std::vector<png_bytep> pointers;
  for (std::vector<uint8_t>& row : rows) {
    for (size_t i = 0; i < row_samples; ++i) {
      // Half of the 16-bit samples are small, where clipping and halving differ.
      unsigned value = static_cast<unsigned>((*random)()) & ((1u << kind.bits) - 1);
      if (kind.bits == 16 && (*random)() % 2 == 0) value &= 0x1FF;
      picture.samples.push_back(static_cast<int>(value));
      if (kind.bits == 16) {
        row[2 * i] = static_cast<uint8_t>(value >> 8);
        row[2 * i + 1] = static_cast<uint8_t>(value);
      } else {
        const size_t bit = i * static_cast<size_t>(kind.bits);
        row[bit / 8] |=
            static_cast<uint8_t>(value << (8 - static_cast<size_t>(kind.bits) - bit % 8));
      }
    }
    pointers.push_back(row.data());
  }
  png_write_image(png, pointers.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return picture;
}

// Pillow's rules, sample by sample.
std::vector<uint8_t> Expected(const Kind& kind, const PngFile& picture, int width,
                              const Rect& region) {
  std::vector<uint8_t> rgb;
  for (int y = region.top; y < region.top + region.height; ++y) {
    for (int x = region.left; x < region.left + region.width; ++x) {
      const int* samples = picture.samples.data() + (y * width + x) * kind.channels();
      for (int channel = 0; channel < 3; ++channel) {
        if (kind.colour_type == PNG_COLOR_TYPE_PALETTE) {
          const png_color& colour = picture.palette[static_cast<size_t>(samples[0])];
          rgb.push_back(channel == 0 ? colour.red : channel == 1 ? colour.green : colour.blue);
        } else {
          const int sample = samples[kind.channels() >= 3 ? channel : 0];
          const bool clipped = kind.bits == 16 && kind.channels() == 1;
          rgb.push_back(static_cast<uint8_t>(clipped ? std::min(sample, 255)
                                             : kind.bits == 16
                                                 ? sample >> 8
                                                 : sample * 255 / ((1 << kind.bits) - 1)));
        }
      }
    }
  }
  return rgb;
}

absl::Status DecodePng(const std::vector<uint8_t>& file, const Rect* region = nullptr, std::string* warning = nullptr) {
  const absl::StatusOr<ImageInfo> info = ReadPngHeader(file);
  if (!info.ok()) return info.status();
  const Rect whole{0, 0, static_cast<int>(info->height), static_cast<int>(info->width)};
  PngDecoder decoder;
  RgbImage image;
  return decoder.Decode(file, *info, region == nullptr ? whole : *region, &image, warning);
}

class PngKinds : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(All, PngKinds, ::testing::ValuesIn(AllKinds()),
                         [](const auto& info) { return info.param.name; });

TEST_P(PngKinds, GiveTheirSamplesByPillowsRules) {
  std::mt19937 random(1);
  PngDecoder decoder;
  RgbImage image;
  for (int i = 0; i < 40; ++i) {
    const int width = 1 + static_cast<int>(random() % 40),
              height = 1 + static_cast<int>(random() % 40);
    const PngFile picture = MakePng(GetParam(), width, height, i % 2 == 1, &random);
    ASSERT_TRUE(IsPng(picture.file));
    const absl::StatusOr<ImageInfo> info = ReadPngHeader(picture.file);
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_EQ(info->width, static_cast<uint32_t>(width));
    EXPECT_EQ(info->height, static_cast<uint32_t>(height));
    EXPECT_EQ(info->components,
              GetParam().colour_type == PNG_COLOR_TYPE_PALETTE ? 3 : GetParam().channels());
    for (int k = 0; k < 4; ++k) {
      const Rect region = k == 0 ? Rect{0, 0, height, width} : RandomRegion(&random, width, height);
      std::string warning = "not set";
      const absl::Status status = decoder.Decode(picture.file, *info, region, &image, &warning);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(warning, "");
      ASSERT_TRUE(PixelsOf(image) == Expected(GetParam(), picture, width, region))
          << width << " x " << height;
    }
  }
}

// A chunk with its checksum.
void Append(std::vector<uint8_t>* file, const std::string& type, const std::string& body) {
  std::vector<uint8_t> chunk;
  const auto number = [&chunk](uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8)
      chunk.push_back(static_cast<uint8_t>(value >> shift));
  };
  number(static_cast<uint32_t>(body.size()));
  chunk.insert(chunk.end(), type.begin(), type.end());
  chunk.insert(chunk.end(), body.begin(), body.end());
  uint32_t checksum = 0xFFFFFFFF;
  for (size_t i = 4; i < chunk.size(); ++i) {
    checksum ^= chunk[i];
    for (int bit = 0; bit < 8; ++bit) checksum = checksum >> 1 ^ (checksum & 1 ? 0xEDB88320 : 0);
  }
  number(~checksum);
  file->insert(file->end() - 12, chunk.begin(), chunk.end());  // before IEND
}

PngFile Photo(bool interlaced) {
  std::mt19937 random(2);
  return MakePng({"rgb8", PNG_COLOR_TYPE_RGB, 8}, 60, 50, interlaced, &random);
}

TEST(PngDecoder, RefusesAFileThatIsCutOff) {
  for (const bool interlaced : {false, true}) {
    std::vector<uint8_t> file = Photo(interlaced).file;
    file.resize(file.size() / 2);
    const absl::Status status = DecodePng(file);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("the file is cut off"));
  }
}

TEST(PngDecoder, RefusesAnotherSizeThanTheIndexSaysBeforeItTakesMemory) {
  const std::vector<uint8_t> file = Photo(false).file;
  absl::StatusOr<ImageInfo> info = ReadPngHeader(file);
  ASSERT_TRUE(info.ok());
  info->height += 1;
  RgbImage image;
  const Rect whole = {0, 0, static_cast<int>(info->height), static_cast<int>(info->width)};
  EXPECT_FALSE(PngDecoder().Decode(file, *info, whole, &image, nullptr).ok());
  EXPECT_EQ(image.pixels.capacity(), 0u);
}

TEST(PngDecoder, TellsAWrongChecksumOfTheImageDataAndRefusesOthers) {
  std::vector<uint8_t> file = Photo(false).file;
  file[file.size() - 13] ^= 1;  // the last byte of IDAT's checksum; IEND has 12 bytes
  std::string warning;
  EXPECT_TRUE(DecodePng(file, nullptr, &warning).ok());
  EXPECT_THAT(warning, HasSubstr("CRC error"));
  file = Photo(false).file;
  file[32] ^= 1;  // of IHDR's
  EXPECT_THAT(std::string(DecodePng(file).message()), HasSubstr("wrong checksum of IHDR"));
}

// The file with its image data cut into chunks: all but the last `count` bytes, and these.
std::vector<uint8_t> WithTheEndInAnotherChunk(absl::Span<const uint8_t> file, size_t count) {
  std::vector<uint8_t> cut(file.begin(), file.begin() + sizeof(kPngSignature));
  cut.resize(cut.size() + 12);  // IEND's, before which Append puts chunks
  file.remove_prefix(sizeof(kPngSignature));
  std::string data;
  for (PngChunk chunk; TakePngChunk(&file, &chunk) && chunk.type != "IEND";) {
    const std::string body(chunk.body.begin(), chunk.body.end());
    chunk.type == "IDAT" ? void(data += body) : Append(&cut, std::string(chunk.type), body);
  }
  Append(&cut, "IDAT", data.substr(0, data.size() - count));
  Append(&cut, "IDAT", data.substr(data.size() - count));
  return cut;
}

TEST(PngDecoder, NoticesZlibsChecksumOnlyIfItIsInTheChunkOfTheLastRow) {
  for (const bool interlaced : {false, true}) {
    std::vector<uint8_t> file = Photo(interlaced).file;
    file[file.size() - 17] ^= 1;  // the last byte of Adler-32, before IDAT's checksum and IEND
    EXPECT_THAT(std::string(DecodePng(file).message()), HasSubstr("incorrect data check"));
    std::string warning;
    EXPECT_TRUE(DecodePng(WithTheEndInAnotherChunk(file, 4), nullptr, &warning).ok());
    EXPECT_EQ(warning, "incorrect data check");
    EXPECT_TRUE(DecodePng(WithTheEndInAnotherChunk(Photo(interlaced).file, 4), nullptr, &warning).ok());
    EXPECT_EQ(warning, "");
  }
}

TEST(PngDecoder, PutsTheImageDataWhereFcTLSaysAndRefusesPlacesOutside) {
  using namespace std::string_literals;
  std::mt19937 random(4);
  const std::vector<uint8_t> small = MakePng({"rgb8", PNG_COLOR_TYPE_RGB, 8}, 3, 2, false, &random).file;
  const std::vector<uint8_t> expected = [&small] {
    RgbImage image;
    EXPECT_TRUE(PngDecoder().Decode(small, *ReadPngHeader(small), {0, 0, 2, 3}, &image, nullptr).ok());
    return PixelsOf(image);
  }();
  for (const char left : {'\x07', '\x08'}) {
    std::vector<uint8_t> file(small.begin(), small.begin() + sizeof(kPngSignature));
    file.resize(file.size() + 12);
    Append(&file, "IHDR", "\0\0\0\x0A\0\0\0\x05\x08\x02\0\0\0"s);  // 10 x 5
    Append(&file, "fcTL", "\0\0\0\0\0\0\0\x03\0\0\0\x02\0\0\0"s + left + "\0\0\0\x03\0\x01\0\x01\0\0"s);
    const std::vector<uint8_t> data = WithTheEndInAnotherChunk(small, 0);
    file.insert(file.end() - 12, data.begin() + 33, data.end() - 12);
    RgbImage image;
    const absl::Status status = PngDecoder().Decode(file, *ReadPngHeader(file), {0, 0, 5, 10}, &image, nullptr);
    ASSERT_EQ(status.ok(), left == '\x07') << status;
    for (int y = 0; status.ok() && y < 5; ++y) {
      for (int i = 0; i < 30; ++i) {
        const bool inside = y >= 3 && i >= 21;
        EXPECT_EQ(image.row(y)[i], inside ? expected[static_cast<size_t>(9 * (y - 3) + i - 21)] : 0);
      }
    }
  }
}

TEST(PngDecoder, SurvivesArbitraryDamage) {
  std::mt19937 random(3);
  int refused = 0;
  const std::vector<Kind> kinds = AllKinds();
  for (int i = 0; i < 2000; ++i) {
    std::vector<uint8_t> file =
        MakePng(kinds[random() % kinds.size()], 20, 20, i % 2 == 0, &random).file;
    for (int k = 0; k < 3; ++k)
      file[33 + random() % (file.size() - 33)] = static_cast<uint8_t>(random());
    refused += DecodePng(file).ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 1000);
}

TEST(PngHeader, FindsTheOrientationBehindTheImageData) {
  using namespace std::string_literals;
  const std::string tiff = "II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"s;
  std::vector<uint8_t> file = Photo(false).file;
  EXPECT_EQ(ReadPngHeader(file)->orientation, 1);
  std::vector<uint8_t> with_xmp = file;
  Append(&with_xmp, "iTXt", "XML:com.adobe.xmp\0\0\0\0\0<x tiff:Orientation=\"8\"/>"s);
  EXPECT_EQ(ReadPngHeader(with_xmp)->orientation, 8);
  Append(&with_xmp, "eXIf", tiff);
  EXPECT_EQ(ReadPngHeader(with_xmp)->orientation, 6) << "EXIF wins";
  EXPECT_TRUE(DecodePng(with_xmp).ok());
}

}  // namespace
}  // namespace headrace
