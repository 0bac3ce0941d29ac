#include "core/decode/avif/avif_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "core/decode/probe.h"
#include "core/shard/format.h"
#include "tests/decode/regions.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;
using testing::PixelsOf;
using testing::RandomRegion;

// 20 x 14 pixels, 4:2:0, EXIF orientation 7 as irot and imir; written by Pillow.
constexpr char kFile[] =
    "00000020667479706176696600000000617669666d6966316d6961664d413142000000ff6d657461000000000000002168646c72000000000000"
    "000070696374000000000000000000000000000000000e7069746d0000000000010000001e696c6f630000000044000001000100000001000001"
    "27000000460000002869696e660000000000010000001a696e6665020000000001000061763031436f6c6f72000000007e697072700000005d69"
    "70636f000000146973706500000000000000140000000e000000107069786900000000030808080000000c6176314381000c0000000013636f6c"
    "726e636c780001000d0006800000000969726f740300000009696d6972000000001969706d610000000000000001000106010283048586000000"
    "4e6d64617412000a091810e7ad1010d0684032371ac78785e1cc30c302855480d71ea81c56a864a995357fd4fab46564ddfe6760c03552e7c2e0"
    "6b7d4ca4100aff9d4a2a0f0ca465704180";
constexpr int kWidth = 20, kHeight = 14;

// A grid of two tiles of 64 x 64 pixels, one above the other, whose AV1 pictures are 96 x 96.
constexpr char kGrid[] =
    "00000018667479706176696600000000617669666d696631000001406d657461000000000000002168646c720000000000000000706963740000"
    "00000000000000000000000000000e7069746d0000000000010000003a696c6f6300000000440000030001000000010000016000000008000200"
    "000001000001680000002000030000000100000188000000200000004d69696e6600000000000300000015696e66650200000000010000677269"
    "640000000015696e66650200000000020000617630310000000015696e6665020000000003000061763031000000001c69726566000000000000"
    "001064696d67000100020002000300000062697072700000003c6970636f00000014697370650000000000000040000000800000001469737065"
    "0000000000000040000000400000000c6176314381001c000000001e69706d610000000000000003000101010002020283000302028300000050"
    "6d646174000001000040008012000a091819afdf69808683503211136167771c0b2b00cfca2c46c7ec43a45e12000a091819afdf698086835032"
    "11136167771c0b2b00cfca2c46c7ec43a45e";

std::vector<uint8_t> AvifFile(const std::string& hex = kFile) {
  std::vector<uint8_t> file;
  for (size_t i = 0; i < hex.size(); i += 2) file.push_back(static_cast<uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return file;
}

// Where the text first stands in the file.
size_t Where(const std::vector<uint8_t>& file, const std::string& text) {
  const auto found = std::search(file.begin(), file.end(), text.begin(), text.end());
  EXPECT_NE(found, file.end());
  return static_cast<size_t>(found - file.begin());
}

absl::Status DecodeAvifFile(const std::vector<uint8_t>& file, const Rect& region, RgbImage* out, uint64_t max_scaled = kMaxImagePixels) {
  const absl::StatusOr<ImageInfo> info = ReadAvifHeader(file);
  if (!info.ok()) return info.status();
  std::vector<uint8_t> scratch;
  return DecodeAvif(file, *info, region, max_scaled, &scratch, out);
}

std::string RefusalOfAvif(const std::vector<uint8_t>& file, uint64_t max_scaled = kMaxImagePixels) {
  RgbImage image;
  return std::string(DecodeAvifFile(file, {0, 0, 1, 1}, &image, max_scaled).message());
}

TEST(AvifDecoder, ReadsTheContainer) {
  const absl::StatusOr<ImageInfo> info = ProbeImage(AvifFile());
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->format, ImageFormat::kAvif);
  EXPECT_EQ(info->width, 20u);
  EXPECT_EQ(info->height, 14u);
  EXPECT_EQ(info->components, 3);
  EXPECT_EQ(info->orientation, 7);
}

TEST(AvifDecoder, GivesPillowsPixelsAndRegionsOfThem) {
  std::mt19937 random(2);
  RgbImage whole, part;
  ASSERT_TRUE(DecodeAvifFile(AvifFile(), {0, 0, kHeight, kWidth}, &whole).ok());
  const auto pixel = [&](int x, int y) { return std::vector<uint8_t>(whole.row(y) + 3 * x, whole.row(y) + 3 * x + 3); };
  EXPECT_EQ(pixel(0, 0), (std::vector<uint8_t>{15, 16, 18}));
  EXPECT_EQ(pixel(19, 13), (std::vector<uint8_t>{125, 142, 162}));
  EXPECT_EQ(pixel(7, 5), (std::vector<uint8_t>{48, 55, 63}));
  for (int i = 0; i < 100; ++i) {
    const Rect region = RandomRegion(&random, kWidth, kHeight);
    ASSERT_TRUE(DecodeAvifFile(AvifFile(), region, &part).ok());
    for (int y = 0; y < region.height; ++y) {
      const uint8_t* expected = whole.row(region.top + y) + 3 * region.left;
      ASSERT_TRUE(std::equal(expected, expected + part.stride(), part.row(y))) << i;
    }
  }
}

TEST(AvifDecoder, RefusesWhatIsCutOff) {
  const std::vector<uint8_t> file = AvifFile();
  for (size_t size = 0; size < file.size(); size += 3) {
    EXPECT_NE(RefusalOfAvif({file.begin(), file.begin() + static_cast<ptrdiff_t>(size)}), "") << size;
  }
}

TEST(AvifDecoder, RefusesHeadersThatPromiseMoreThanTheDataHold) {
  std::vector<uint8_t> file = AvifFile();
  const size_t extent = Where(file, "ispe") + 8;
  file[extent + 2] = 0x20;
  file[extent + 6] = 0x60;
  EXPECT_THAT(ProbeImage(file).status().message(), HasSubstr("8212 x 24590 pixels are more than"));
}

// The container says another size than the AV1 data: Pillow scales their planes.
TEST(AvifDecoder, ScalesToTheSizeThatTheContainerSays) {
  std::vector<uint8_t> file = AvifFile();
  const size_t extent = Where(file, "ispe") + 8;
  RgbImage image;
  file[extent + 3] = 15;
  file[extent + 7] = 7;
  ASSERT_TRUE(DecodeAvifFile(file, {0, 0, 7, 15}, &image).ok());
  const auto pixel = [&](int x, int y) { return std::vector<uint8_t>(image.row(y) + 3 * x, image.row(y) + 3 * x + 3); };
  EXPECT_EQ(pixel(0, 0), (std::vector<uint8_t>{13, 14, 16}));
  EXPECT_EQ(pixel(9, 4), (std::vector<uint8_t>{81, 93, 105}));
  file[extent + 3] = 90;
  file[extent + 7] = 33;
  ASSERT_TRUE(DecodeAvifFile(file, {0, 0, 33, 90}, &image).ok());
  EXPECT_EQ(pixel(0, 0), (std::vector<uint8_t>{15, 16, 18}));
  EXPECT_EQ(pixel(61, 17), (std::vector<uint8_t>{70, 86, 99}));
}

// A small header could otherwise be followed by data that cost any amount of memory and time.
TEST(AvifDecoder, RefusesFramesLargerThanTheContainerSaysAboveALimit) {
  std::vector<uint8_t> file = AvifFile();
  const size_t extent = Where(file, "ispe") + 8;
  EXPECT_EQ(RefusalOfAvif(file, 0), "");
  file[extent + 3] = 90;
  EXPECT_EQ(RefusalOfAvif(file, 0), "");
  file[extent + 3] = 8;
  EXPECT_THAT(RefusalOfAvif(file, kWidth * kHeight - 1), HasSubstr("too large"));
  EXPECT_EQ(RefusalOfAvif(file, kWidth * kHeight), "");
  // What the first tile had more is not there for the second.
  const uint64_t tile = 64 * 64, frame = 96 * 96;
  EXPECT_EQ(RefusalOfAvif(AvifFile(kGrid), frame - tile + frame), "");
  EXPECT_THAT(RefusalOfAvif(AvifFile(kGrid), frame - tile + frame - 1), HasSubstr("too large"));
}

// A hundred bytes could otherwise cost as many seconds.
TEST(AvifDecoder, RefusesManyFramesInOnePicture) {
  std::vector<uint8_t> file = AvifFile();
  const size_t data = Where(file, "mdat") + 4, length = Where(file, "iloc") + 4 + 4 + 4 + 10;
  const std::vector<uint8_t> shown_again = {0x1A, 0x01, 0x80};  // a frame header that shows an earlier frame
  for (int i = 0; i < 65; ++i) file.insert(file.end(), shown_again.begin(), shown_again.end());
  const size_t bytes = file.size() - data;
  file[length + 2] = static_cast<uint8_t>(bytes >> 8);
  file[length + 3] = static_cast<uint8_t>(bytes);
  EXPECT_THAT(RefusalOfAvif(file), HasSubstr("more than 64 frames"));
}

// 20,000 items of 65,535 places each, none of which takes a byte of the file: 20 GB, if they were kept.
TEST(AvifDecoder, PlacesOfNoLengthCostNothing) {
  const auto box = [](const std::string& type, const std::string& body) {
    const size_t size = 8 + body.size();
    const std::string head = {0, static_cast<char>(size >> 16), static_cast<char>(size >> 8), static_cast<char>(size)};
    return head + type + body;
  };
  const std::string zeros(64, '\0');
  std::string places = zeros.substr(0, 4) + zeros.substr(0, 2) + "\x4E\x20";
  for (int id = 1; id <= 20000; ++id) {
    places += {static_cast<char>(id >> 8), static_cast<char>(id), 0, 0, '\xFF', '\xFF'};
  }
  const std::string handler = box("hdlr", zeros.substr(0, 8) + "pict" + zeros.substr(0, 13));
  const std::string text = box("ftyp", "avif" + zeros.substr(0, 4)) + box("meta", zeros.substr(0, 4) + handler + box("iloc", places));
  EXPECT_EQ(RefusalOfAvif({text.begin(), text.end()}), "AVIF: no primary item that is AV1");
}

TEST(AvifDecoder, SurvivesArbitraryBytes) {
  std::mt19937 random(4);
  const std::vector<uint8_t> file = AvifFile();
  RgbImage image;
  int decoded = 0;
  for (int i = 0; i < 3000; ++i) {
    std::vector<uint8_t> damaged = file;
    for (int k = 0; k < 2; ++k) damaged[random() % damaged.size()] = static_cast<uint8_t>(random());
    decoded += DecodeAvifFile(damaged, {0, 0, 1, 1}, &image).ok() ? 1 : 0;
  }
  EXPECT_GT(decoded, 100);
}

}  // namespace
}  // namespace headrace
