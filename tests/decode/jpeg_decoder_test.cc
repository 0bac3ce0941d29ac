#include "core/decode/jpeg/jpeg_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "core/decode/jpeg/jpeg_header.h"
#include "tests/decode/regions.h"
#include "tests/support/jpeg_maker.h"

namespace headrace {
namespace {

using testing::AllSamplings;
using testing::DecodeWhole;
using ::testing::HasSubstr;
using testing::JpegOptions;
using testing::MakeJpeg;
using testing::PixelsOf;
using testing::Process;
using testing::RandomRegion;
using testing::Sampling;

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

int Below(std::mt19937* random, int bound) {
  return static_cast<int>((*random)() % static_cast<unsigned>(bound));
}

Rect Everything(const ImageInfo& info) {
  return {0, 0, static_cast<int>(info.height), static_cast<int>(info.width)};
}

// `region` of a whole picture with `channels` interleaved channels.
std::vector<uint8_t> Cut(const std::vector<uint8_t>& whole, int width, int channels,
                         const Rect& region) {
  std::vector<uint8_t> part;
  for (int y = region.top; y < region.top + region.height; ++y) {
    const auto from = whole.begin() + (static_cast<ptrdiff_t>(y) * width + region.left) * channels;
    part.insert(part.end(), from, from + static_cast<ptrdiff_t>(region.width) * channels);
  }
  return part;
}

// Pillow: the channels are inverted, then (255 − K) − C · (255 − K) / 255, rounded, per colour.
std::vector<uint8_t> RgbOfCmyk(const std::vector<uint8_t>& cmyk) {
  std::vector<uint8_t> rgb;
  for (size_t i = 0; i < cmyk.size(); i += 4) {
    const int white = 255 - (255 - cmyk[i + 3]);
    for (size_t channel = 0; channel < 3; ++channel) {
      const int ink = 255 - cmyk[i + channel];
      rgb.push_back(
          static_cast<uint8_t>(std::max(white - static_cast<int>(ink * white / 255.0 + 0.5), 0)));
    }
  }
  return rgb;
}

std::vector<uint8_t> RgbWhole(const std::vector<uint8_t>& file, int components) {
  const std::vector<uint8_t> whole = DecodeWhole(file);
  return components == 4 ? RgbOfCmyk(whole) : whole;
}

class JpegRegions : public ::testing::TestWithParam<std::tuple<Sampling, Process>> {};

TEST_P(JpegRegions, EqualAFullDecodeCutToThem) {
  const auto& [sampling, process] = GetParam();
  std::mt19937 random(static_cast<unsigned>(process) + 1);
  JpegDecoder decoder;
  RgbImage image;
  for (int i = 0; i < 60; ++i) {
    const int longest = i % 4 == 0 ? 200 : 70;
    JpegOptions options;
    options.width = 1 + Below(&random, longest);
    options.height = 1 + Below(&random, longest);
    options.sampling = sampling;
    options.process = process;
    options.quality = 40 + Below(&random, 60);
    options.restart_interval = i % 3 == 0 ? 1 + Below(&random, 6) : 0;
    options.ycck = sampling.components() == 4 && i % 2 == 1;
    const std::vector<uint8_t> file = MakeJpeg(options, &random);
    const absl::StatusOr<ImageInfo> info = ReadJpegHeader(file);
    ASSERT_TRUE(info.ok()) << info.status();
    const std::vector<uint8_t> whole = RgbWhole(file, sampling.components());
    for (int k = 0; k < 6; ++k) {
      const Rect region =
          k == 0 ? Everything(*info) : RandomRegion(&random, options.width, options.height);
      std::string warning;
      const absl::Status status = decoder.Decode(file, *info, region, &image, &warning);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(warning, "");
      ASSERT_TRUE(PixelsOf(image) == Cut(whole, options.width, 3, region))
          << options.width << " x " << options.height << ", region " << region.top << ", "
          << region.left << ", " << region.height << ", " << region.width;
    }
  }
}

std::string NameOf(const ::testing::TestParamInfo<std::tuple<Sampling, Process>>& info) {
  static const char* const kNames[] = {"baseline", "scan_per_component", "progressive",
                                       "arithmetic"};
  return std::get<0>(info.param).name + "_" + kNames[static_cast<int>(std::get<1>(info.param))];
}
INSTANTIATE_TEST_SUITE_P(
    All, JpegRegions,
    ::testing::Combine(::testing::ValuesIn(AllSamplings()),
                       ::testing::Values(Process::kBaseline, Process::kScanPerComponent,
                                         Process::kProgressive, Process::kArithmetic)),
    NameOf);

// A 4:2:0 picture to be damaged.
std::vector<uint8_t> Picture(Process process, int restart_interval = 0) {
  std::mt19937 random(5);
  JpegOptions options;
  options.width = 90;
  options.height = 75;
  options.sampling = {"s420", {2, 1, 1}, {2, 1, 1}};
  options.process = process;
  options.restart_interval = restart_interval;
  return MakeJpeg(options, &random);
}

struct Decoded {
  absl::Status status;
  std::string warning;
  std::vector<uint8_t> pixels;
};

Decoded Decode(const std::vector<uint8_t>& file, const Rect* region = nullptr) {
  const absl::StatusOr<ImageInfo> info = ReadJpegHeader(file);
  if (!info.ok()) return {info.status(), "", {}};
  JpegDecoder decoder;
  RgbImage image;
  Decoded result;
  result.status = decoder.Decode(file, *info, region == nullptr ? Everything(*info) : *region,
                                 &image, &result.warning);
  if (result.status.ok()) result.pixels = PixelsOf(image);
  return result;
}

TEST(JpegDecoder, FillsWhatIsCutOffAndWarns) {
  for (const Process process : {Process::kBaseline, Process::kProgressive, Process::kArithmetic}) {
    std::vector<uint8_t> file = Picture(process);
    file.resize(file.size() * 6 / 10);
    const Decoded decoded = Decode(file);
    ASSERT_TRUE(decoded.status.ok()) << decoded.status;
    EXPECT_EQ(decoded.warning, "Premature end of JPEG file");
    EXPECT_TRUE(decoded.pixels == DecodeWhole(file));
  }
}

TEST(JpegDecoder, DoesNotReadBehindTheRegion) {
  std::vector<uint8_t> file = Picture(Process::kBaseline);
  file.resize(file.size() / 2);
  const Rect top{0, 10, 16, 40};
  const Decoded decoded = Decode(file, &top);
  ASSERT_TRUE(decoded.status.ok()) << decoded.status;
  EXPECT_EQ(decoded.warning, "") << "the damage lies below the region";
}

TEST(JpegDecoder, ReportsWhatFollowsTheLastRow) {
  std::vector<uint8_t> file = Picture(Process::kBaseline);
  file.insert(file.end() - 2, 100, 1);
  const Decoded decoded = Decode(file);
  ASSERT_TRUE(decoded.status.ok()) << decoded.status;
  EXPECT_THAT(decoded.warning, HasSubstr("extraneous bytes before marker 0xd9"));
}

TEST(JpegDecoder, GivesRowsThatAreThereThoughAHeaderBehindThemIsCutOff) {
  const std::vector<uint8_t> whole = Picture(Process::kBaseline);
  std::vector<uint8_t> file = whole;
  file.back() = 0xDA;  // of EOI, with which it ends
  const Decoded decoded = Decode(file);
  ASSERT_TRUE(decoded.status.ok()) << decoded.status;
  EXPECT_EQ(decoded.warning, "Premature end of JPEG file");
  EXPECT_TRUE(decoded.pixels == Decode(whole).pixels);
  file.insert(file.end(), {0, 2, 1, 0});  // a broken header that is there is still broken
  EXPECT_FALSE(Decode(file).status.ok());
}

// What libjpeg makes of damage does not depend on where it started to look: rows and columns
// outside the region are decoded for their entropy alone, with the same repairs.
TEST(JpegDecoder, RegionsOfDamagedFilesEqualTheFullDecode) {
  std::mt19937 random(11);
  int damaged = 0;
  for (int i = 0; i < 400; ++i) {
    const Process process = static_cast<Process>(i % 3);
    std::vector<uint8_t> file = Picture(process, i % 2 == 0 ? 3 : 0);
    const size_t scan = file.size() / 3;  // behind the headers
    for (int k = 0; k < 3; ++k)
      file[scan + random() % (file.size() - scan - 2)] = static_cast<uint8_t>(random());
    const Decoded whole = Decode(file);
    if (!whole.status.ok()) continue;
    damaged += whole.warning.empty() ? 0 : 1;
    ASSERT_TRUE(whole.pixels == DecodeWhole(file));
    const Rect region = RandomRegion(&random, 90, 75);
    const Decoded part = Decode(file, &region);
    ASSERT_TRUE(part.status.ok()) << part.status;
    ASSERT_TRUE(part.pixels == Cut(whole.pixels, 90, 3, region)) << "picture " << i;
  }
  EXPECT_GT(damaged, 100);
}

// Incomplete progressive files: libjpeg-turbo smooths blocks with the help of their neighbours.
TEST(JpegDecoder, RegionsOfSmoothedFilesEqualTheFullDecode) {
  std::mt19937 random(12);
  std::vector<uint8_t> file = Picture(Process::kProgressive);
  // Ends behind the first scans: the DC coefficients, one bit of them open, and what fits.
  for (const int tenths : {3, 4, 5, 6}) {
    std::vector<uint8_t> cut(file.begin(),
                             file.begin() + static_cast<ptrdiff_t>(file.size() * tenths / 10));
    const std::vector<uint8_t> whole = DecodeWhole(cut);
    for (int k = 0; k < 20; ++k) {
      const Rect region = RandomRegion(&random, 90, 75);
      const Decoded part = Decode(cut, &region);
      ASSERT_TRUE(part.status.ok()) << part.status;
      ASSERT_TRUE(part.pixels == Cut(whole, 90, 3, region));
    }
  }
}

TEST(JpegDecoder, KeepsNoTablesOfTheFileBefore) {
  std::vector<uint8_t> file = Picture(Process::kBaseline);
  // Without its quantisation tables: DQT becomes a comment.
  std::vector<uint8_t> bare = file;
  for (size_t i = 0; i + 1 < bare.size() && !(bare[i] == 0xFF && bare[i + 1] == 0xDA); ++i) {
    if (bare[i] == 0xFF && bare[i + 1] == 0xDB) bare[i + 1] = 0xFE;
  }
  const absl::StatusOr<ImageInfo> info = ReadJpegHeader(bare);
  ASSERT_TRUE(info.ok()) << info.status();
  JpegDecoder decoder;
  RgbImage image;
  ASSERT_TRUE(decoder.Decode(file, *info, Everything(*info), &image, nullptr).ok());
  const absl::Status status = decoder.Decode(bare, *info, Everything(*info), &image, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(MessageOf(status), HasSubstr("Quantization table 0x00 was not defined"));
  EXPECT_TRUE(decoder.Decode(file, *info, Everything(*info), &image, nullptr).ok())
      << "usable after an error";
}

TEST(JpegDecoder, RefusesAnotherSizeThanTheIndexSaysBeforeItTakesMemory) {
  const std::vector<uint8_t> file = Picture(Process::kBaseline);
  absl::StatusOr<ImageInfo> info = ReadJpegHeader(file);
  ASSERT_TRUE(info.ok());
  info->height += 1;
  JpegDecoder decoder;
  RgbImage image;
  const absl::Status status = decoder.Decode(file, *info, Everything(*info), &image, nullptr);
  EXPECT_THAT(MessageOf(status), HasSubstr("another size"));
  EXPECT_EQ(image.pixels.capacity(), 0u);
}

// Progressive files whose scan header is repeated without data.
std::vector<uint8_t> ScanBomb(int scans) {
  std::vector<uint8_t> file = Picture(Process::kProgressive);
  size_t at = 0;
  while (!(file[at] == 0xFF && file[at + 1] == 0xDA)) ++at;
  const size_t header_bytes = 2 + (size_t{file[at + 2]} << 8 | file[at + 3]);
  const std::vector<uint8_t> header(file.begin() + static_cast<ptrdiff_t>(at),
                                    file.begin() + static_cast<ptrdiff_t>(at + header_bytes));
  file.resize(at);
  for (int i = 0; i < scans; ++i) file.insert(file.end(), header.begin(), header.end());
  file.insert(file.end(), {0xFF, 0xD9});
  return file;
}

TEST(JpegDecoder, RefusesFilesOfThousandsOfScans) {
  EXPECT_TRUE(Decode(ScanBomb(400)).status.ok());
  EXPECT_THAT(MessageOf(Decode(ScanBomb(5000)).status), HasSubstr("too many scans"));
}

TEST(JpegDecoder, SurvivesArbitraryDamage) {
  std::mt19937 random(13);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::vector<uint8_t> file = Picture(static_cast<Process>(i % 4), i % 5);
    const int changes = 1 + Below(&random, 8);
    for (int k = 0; k < changes; ++k) {
      // Half of the changes hit the headers.
      const size_t range = random() % 2 == 0 ? 700 : file.size();
      file[2 + random() % (std::min(range, file.size()) - 2)] = static_cast<uint8_t>(random());
    }
    if (random() % 4 == 0) file.resize(2 + random() % (file.size() - 2));
    const absl::StatusOr<ImageInfo> info = ReadJpegHeader(file);
    if (!info.ok() || uint64_t{info->width} * info->height > 1000000) continue;
    const Rect region =
        RandomRegion(&random, static_cast<int>(info->width), static_cast<int>(info->height));
    const Decoded decoded = Decode(file, &region);
    refused += decoded.status.ok() ? 0 : 1;
    const absl::StatusCode code = decoded.status.code();
    EXPECT_TRUE(code == absl::StatusCode::kOk || code == absl::StatusCode::kInvalidArgument);
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace headrace
