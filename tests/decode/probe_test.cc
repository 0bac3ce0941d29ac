#include "core/decode/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/support/jpeg_maker.h"

namespace headrace {
namespace {

using testing::AllSamplings;
using ::testing::HasSubstr;
using testing::JpegOptions;
using testing::MakeJpeg;
using testing::Process;
using testing::WithSegment;

absl::StatusOr<ImageInfo> Probe(const std::string& text) {
  return ProbeImage({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

std::string Refusal(const std::vector<uint8_t>& file) {
  const absl::Status status = ProbeImage(file).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

std::string Refusal(const std::string& text) {
  return Refusal(std::vector<uint8_t>(text.begin(), text.end()));
}

std::vector<uint8_t> Picture(Process process = Process::kBaseline) {
  std::mt19937 random(1);
  JpegOptions options;
  options.width = 31;
  options.height = 17;
  options.sampling = {"s420", {2, 1, 1}, {2, 1, 1}};
  options.process = process;
  return MakeJpeg(options, &random);
}

// Where the frame header's marker code stands.
size_t FrameAt(const std::vector<uint8_t>& file) {
  size_t at = 2;
  while (!(file[at + 1] == 0xC0 || file[at + 1] == 0xC2 || file[at + 1] == 0xC9)) {
    at += 2 + (size_t{file[at + 2]} << 8 | file[at + 3]);
  }
  return at + 1;
}

// An EXIF segment with nothing but an orientation.
std::string ExifBody(char orientation) {
  std::string body("Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0?\0\0\0\0\0\0\0", 32);
  body[24] = orientation;
  return body;
}

const std::string kXmpHead("http://ns.adobe.com/xap/1.0/\0", 29);

TEST(Probe, ReadsSizeAndSamplingOfEveryKindOfJpeg) {
  std::mt19937 random(2);
  for (const testing::Sampling& sampling : AllSamplings()) {
    for (const Process process :
         {Process::kBaseline, Process::kProgressive, Process::kArithmetic}) {
      JpegOptions options;
      options.width = 1 + static_cast<int>(random() % 100);
      options.height = 1 + static_cast<int>(random() % 100);
      options.sampling = sampling;
      options.process = process;
      const absl::StatusOr<ImageInfo> info = ProbeImage(MakeJpeg(options, &random));
      ASSERT_TRUE(info.ok()) << info.status();
      EXPECT_EQ(info->format, ImageFormat::kJpeg);
      EXPECT_EQ(info->width, static_cast<uint32_t>(options.width));
      EXPECT_EQ(info->height, static_cast<uint32_t>(options.height));
      EXPECT_EQ(info->components, sampling.components());
      EXPECT_EQ(info->progressive, process == Process::kProgressive);
      EXPECT_EQ(info->orientation, 1);
      for (size_t i = 0; i < sampling.h.size(); ++i) {
        EXPECT_EQ(info->sampling[i], sampling.h[i] << 4 | sampling.v[i]);
      }
    }
  }
}

TEST(Probe, RefusesEveryCutOffHeader) {
  const std::vector<uint8_t> file = Picture();
  size_t scan = 0;
  while (!(file[scan] == 0xFF && file[scan + 1] == 0xDA)) ++scan;
  for (size_t size = 0; size < scan + 2; ++size) {
    EXPECT_FALSE(ProbeImage(absl::MakeConstSpan(file).subspan(0, size)).ok()) << size;
  }
  EXPECT_TRUE(ProbeImage(absl::MakeConstSpan(file).subspan(0, scan + 2)).ok());
}

TEST(Probe, NamesWhatIsWrongWithAFrame) {
  const auto changed = [](size_t offset, uint8_t value) {
    std::vector<uint8_t> file = Picture();
    file[FrameAt(file) + offset] = value;
    return Refusal(file);
  };
  EXPECT_THAT(changed(0, 0xC3), HasSubstr("lossless process (SOF3) is not supported"));
  EXPECT_THAT(changed(0, 0xCF), HasSubstr("hierarchical arithmetic process (SOF15)"));
  EXPECT_THAT(changed(3, 12), HasSubstr("12 bits per sample"));
  EXPECT_THAT(changed(5, 0), HasSubstr("width or height is 0"));  // height 17 → 0
  EXPECT_THAT(changed(8, 2), HasSubstr("2 components are not supported"));
  EXPECT_THAT(changed(8, 4), HasSubstr("wrong length"));
  EXPECT_THAT(changed(10, 0x05), HasSubstr("bogus sampling factors"));
  EXPECT_THAT(changed(13, 0x31), HasSubstr("fractional sampling"));
  EXPECT_THAT(changed(2, 5), HasSubstr("the frame header is too short"));
  std::vector<uint8_t> tall = Picture();
  tall[FrameAt(tall) + 4] = tall[FrameAt(tall) + 5] = 0xFF;
  EXPECT_THAT(Refusal(tall), HasSubstr("31 x 65535 pixels: a side is longer than 65500"));
}

TEST(Probe, RefusesAPictureThatIsTooLargeBeforeAnythingIsAllocated) {
  std::vector<uint8_t> file = Picture();
  const size_t frame = FrameAt(file);
  for (const size_t offset : {size_t{4}, size_t{6}}) {
    file[frame + offset] = 0xFF;
    file[frame + offset + 1] = 0xDC;
  }
  EXPECT_THAT(Refusal(file), HasSubstr("65500 x 65500 pixels are more than 178956970"));
  EXPECT_TRUE(ProbeImage(Picture(), 31 * 17).ok());
  EXPECT_FALSE(ProbeImage(Picture(), 31 * 17 - 1).ok());
}

TEST(Probe, FindsTheOrientationInExifThenInXmp) {
  const std::vector<uint8_t> file = Picture();
  const std::string xmp = kXmpHead + "<rdf tiff:Orientation=\"3\"/>";
  const auto orientation = [](const std::vector<uint8_t>& bytes) {
    const absl::StatusOr<ImageInfo> info = ProbeImage(bytes);
    return info.ok() ? int{info->orientation} : -1;
  };
  EXPECT_EQ(orientation(WithSegment(file, 0xE1, ExifBody(6))), 6);
  EXPECT_EQ(orientation(WithSegment(file, 0xE1, xmp)), 3);
  EXPECT_EQ(orientation(WithSegment(WithSegment(file, 0xE1, xmp), 0xE1, ExifBody(8))), 8);
  EXPECT_EQ(orientation(WithSegment(WithSegment(file, 0xE1, ExifBody(8)), 0xE1, xmp)), 8);
  EXPECT_EQ(orientation(WithSegment(file, 0xE2, ExifBody(6))), 1) << "APP2 is no EXIF";
  // The second segment's bytes continue the first's.
  const std::string body = ExifBody(7);
  const std::vector<uint8_t> split = WithSegment(
      WithSegment(file, 0xE1, body.substr(0, 6) + body.substr(20)), 0xE1, body.substr(0, 20));
  EXPECT_EQ(orientation(split), 7);
}

TEST(Probe, SkipsGarbageBetweenMarkersAsLibjpegDoes) {
  std::vector<uint8_t> file = Picture();
  const size_t frame = FrameAt(file);
  file.insert(file.begin() + static_cast<ptrdiff_t>(frame) - 1,
              {0x12, 0xFF, 0x00, 0x34, 0xFF, 0xFF});
  const absl::StatusOr<ImageInfo> info = ProbeImage(file);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->width, 31u);
}

TEST(Probe, NamesFormatsThatItDoesNotRead) {
  using namespace std::string_literals;
  EXPECT_EQ(Refusal("\0\0\0\x18"s + "ftypheic...."s), "HEIC is not supported");
  EXPECT_EQ(Refusal("P6\n1 1 255\n"s), "PNM is not supported");
  EXPECT_EQ(Refusal("<!DOCTYPE html>"s), "no image: starts with 0x3c 0x21 0x44 0x4f");
  EXPECT_EQ(Refusal("x"s), "no image: starts with 0x78");
  EXPECT_EQ(Refusal(""s), "the file is empty");
}

TEST(Probe, SurvivesArbitraryBytes) {
  std::mt19937 random(4);
  const std::vector<uint8_t> file = WithSegment(Picture(), 0xE1, ExifBody(6));
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::vector<uint8_t> damaged = file;
    for (int k = 0; k < 5; ++k) damaged[3 + random() % 660] = static_cast<uint8_t>(random());
    damaged.resize(3 + random() % (damaged.size() - 3));
    accepted += ProbeImage(damaged).ok() ? 1 : 0;
  }
  EXPECT_GT(accepted, 100);
}

TEST(Probe, RefusesHeadersThatPromiseTooMuchInEveryFormat) {
  using namespace std::string_literals;
  EXPECT_THAT(Refusal("GIF89a\xFF\xFF\xFF\xFF\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02\x44\x01\0;"s),
              HasSubstr("65535 x 65535 pixels are more than"));
  EXPECT_THAT(Refusal("BM\0\0\0\0\0\0\0\0\x1A\0\0\0\x0C\0\0\0\xFF\xFF\xFF\xFF\x01\0\x18\0"s),
              HasSubstr("65535 x 65535 pixels are more than"));
  const std::string tiff = "II*\0\x08\0\0\0\x04\0"
                           "\0\x01\x04\0\x01\0\0\0\xFF\xFF\0\0"
                           "\x01\x01\x04\0\x01\0\0\0\xFF\xFF\0\0"
                           "\x11\x01\x04\0\x01\0\0\0\x08\0\0\0"
                           "\x17\x01\x04\0\x01\0\0\0\x01\0\0\0"
                           "\0\0\0\0"s;
  EXPECT_THAT(Refusal(tiff), HasSubstr("65535 x 65535 pixels are more than"));
  // A lossless WebP of 16,384 × 16,384.
  EXPECT_THAT(Refusal("RIFF\x12\0\0\0WEBPVP8L\x05\0\0\0\x2F\xFF\xFF\xFF\x0F\0"s),
              HasSubstr("16384 x 16384 pixels are more than"));
}

TEST(Probe, ReadsPngHeadersAndRefusesBrokenOnes) {
  using namespace std::string_literals;
  // 1 × 1, 8 bits, grey; checksum of IHDR as libpng writes it.
  const std::string png =
      "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0\x3a\x7e\x9b\x55"s;
  const absl::StatusOr<ImageInfo> info = Probe(png);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->format, ImageFormat::kPng);
  EXPECT_EQ(info->width, 1u);
  EXPECT_EQ(info->components, 1);
  std::string damaged = png;
  damaged[19] = 2;
  EXPECT_THAT(Refusal(damaged), HasSubstr("wrong checksum of IHDR"));
  EXPECT_THAT(Refusal(png.substr(0, 20)), HasSubstr("no IHDR chunk"));
}

}  // namespace
}  // namespace headrace
