#include "core/decode/segment/segment_decoder.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/decode/jpeg/jpeg_decoder.h"
#include "tests/support/indexed_jpeg.h"
#include "tests/support/jpeg_maker.h"

namespace headrace {
namespace {

using testing::AllSamplings;
using testing::IndexedJpeg;
using testing::JpegOptions;
using testing::MakeJpeg;
using testing::Sampling;

int Below(std::mt19937* random, int bound) { return static_cast<int>((*random)() % static_cast<unsigned>(bound)); }

Rect RandomRegion(std::mt19937* random, const JpegFrame& frame) {
  Rect region;
  region.width = 1 + Below(random, frame.width);
  region.height = 1 + Below(random, frame.height);
  region.left = Below(random, frame.width - region.width + 1);
  region.top = Below(random, frame.height - region.height + 1);
  return region;
}

// libjpeg writes a scan per component when an MCU would have more than ten blocks.
bool HasOneScan(const std::vector<uint8_t>& file) {
  const auto frame = ParseJpegFrame(file);
  return frame.ok() || frame.status().message() != "several scans";
}

// Decodes with exactly the bytes that NeededBytes names.
absl::Status DecodeSegments(SegmentDecoder* decoder, const IndexedJpeg& image, const Rect& region, RgbImage* out) {
  const EntryView view = image.View();
  const auto range = SegmentDecoder::NeededBytes(view, region);
  if (!range.ok()) return range.status();
  const uint64_t end = std::min<uint64_t>(range->end, image.file.size());
  const std::vector<uint8_t> part(image.file.begin() + static_cast<ptrdiff_t>(range->begin),
                                  image.file.begin() + static_cast<ptrdiff_t>(end));
  return decoder->Decode(view, image.frame, part, range->begin, region, out);
}

void ExpectEqualToLibjpeg(SegmentDecoder* decoder, const IndexedJpeg& image, const Rect& region) {
  JpegDecoder libjpeg;
  RgbImage expected, got;
  std::string warning;
  ASSERT_TRUE(libjpeg.Decode(image.file, image.info, region, &expected, &warning).ok());
  const absl::Status status = DecodeSegments(decoder, image, region, &got);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(got.width, region.width);
  for (int y = 0; y < region.height; ++y) {
    ASSERT_EQ(std::memcmp(expected.row(y), got.row(y), got.stride()), 0)
        << "row " << y << " of region " << region.top << ", " << region.left << ", " << region.height << ", "
        << region.width << " of " << image.frame.width << " x " << image.frame.height;
  }
}

// Makes the checksum of entry data right again.
void Reseal(std::string* encoded) {
  const uint64_t hash = XXH3_64bits(encoded->data() + 8, encoded->size() - 8);
  std::memcpy(encoded->data(), &hash, sizeof hash);
}

class SegmentRegions : public ::testing::TestWithParam<Sampling> {};

TEST_P(SegmentRegions, EqualLibjpegsOnEveryTarget) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    std::mt19937 random(5);
    SegmentDecoder decoder;
    for (int size = 0; size < 16; ++size) {
      JpegOptions options;
      options.sampling = GetParam();
      options.width = 1 + Below(&random, size < 8 ? 40 : 160);
      options.height = 1 + Below(&random, size < 8 ? 40 : 160);
      options.quality = 20 + Below(&random, 80);
      options.ycck = size % 2 && options.sampling.components() == 4;
      options.restart_interval = size % 3 == 0 ? 1 + Below(&random, 12) : 0;
      const std::vector<uint8_t> file = MakeJpeg(options, &random);
      if (!HasOneScan(file)) continue;
      IndexedJpeg image;
      ASSERT_TRUE(image.Make(file, 8));
      for (int i = 0; i < 3; ++i) ExpectEqualToLibjpeg(&decoder, image, RandomRegion(&random, image.frame));
      ExpectEqualToLibjpeg(&decoder, image, {0, 0, image.frame.height, image.frame.width});
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

INSTANTIATE_TEST_SUITE_P(All, SegmentRegions, ::testing::ValuesIn(AllSamplings()),
                         [](const auto& param) { return "Sampling" + std::to_string(param.index); });

TEST(SegmentDecoder, GivesTheSamePixelsForEveryIntervalAndNumberOfStreams) {
  std::mt19937 random(6);
  for (const Sampling& sampling : AllSamplings()) {
    JpegOptions options;
    options.sampling = sampling;
    options.width = 137;
    options.height = 93;
    const std::vector<uint8_t> file = MakeJpeg(options, &random);
    if (!HasOneScan(file)) continue;
    for (const int interval : {1, 4, 7, 8, 32, kMaxEntryInterval}) {
      IndexedJpeg image;
      ASSERT_TRUE(image.Make(file, interval));
      for (int streams = 1; streams <= 4; ++streams) {
        SegmentDecoder decoder(streams);
        for (int i = 0; i < 3; ++i) ExpectEqualToLibjpeg(&decoder, image, RandomRegion(&random, image.frame));
      }
    }
  }
}

// Not even one flipped bit makes other pixels of a whole image than libjpeg makes of it: what is damaged is refused, unless
// libjpeg cannot tell either.
TEST(SegmentDecoder, DecodesADamagedImageAsLibjpegOrRefusesIt) {
  std::mt19937 random(31);
  SegmentDecoder decoder;
  JpegDecoder libjpeg;
  int decoded = 0, refused = 0;
  for (int round = 0; round < 6000; ++round) {
    JpegOptions options;
    options.sampling = AllSamplings()[static_cast<size_t>(Below(&random, static_cast<int>(AllSamplings().size())))];
    options.width = 10 + Below(&random, 100);
    options.height = 10 + Below(&random, 100);
    options.quality = 20 + Below(&random, 80);
    options.restart_interval = round % 3 == 0 ? 1 + Below(&random, 12) : 0;
    options.ycck = round % 2 == 0 && options.sampling.components() == 4;
    const std::vector<uint8_t> file = MakeJpeg(options, &random);
    if (!HasOneScan(file)) continue;
    IndexedJpeg image;
    ASSERT_TRUE(image.Make(file, 1 + Below(&random, 9)));
    const size_t scan = image.frame.scan_offset;
    uint8_t& byte = image.file[scan + random() % (image.file.size() - scan)];
    byte = static_cast<uint8_t>(byte ^ 1u << Below(&random, 8));
    RgbImage expected, got;
    if (!DecodeSegments(&decoder, image, image.whole(), &got).ok()) {
      ++refused;
      continue;
    }
    ++decoded;
    std::string warning;
    ASSERT_TRUE(libjpeg.Decode(image.file, image.info, image.whole(), &expected, &warning).ok());
    const size_t bytes = got.stride() * static_cast<size_t>(got.height);
    ASSERT_EQ(std::memcmp(expected.pixels.data(), got.pixels.data(), bytes), 0) << "round " << round;
  }
  EXPECT_GT(decoded, 1000);
  EXPECT_GT(refused, 1000);
}

TEST(SegmentDecoder, DamagedBytesAndEntriesTouchNothingOutside) {
  std::mt19937 random(8);
  SegmentDecoder decoder;
  int failed = 0;
  for (int round = 0; round < 1000; ++round) {
    JpegOptions options;
    options.sampling = AllSamplings()[static_cast<size_t>(Below(&random, static_cast<int>(AllSamplings().size())))];
    options.width = 20 + Below(&random, 100);
    options.height = 20 + Below(&random, 100);
    options.restart_interval = round % 4 == 0 ? 3 : 0;
    const std::vector<uint8_t> file = MakeJpeg(options, &random);
    if (!HasOneScan(file)) continue;
    IndexedJpeg image;
    ASSERT_TRUE(image.Make(file, 1 + Below(&random, 9)));
    const size_t scan = image.frame.scan_offset;
    for (int i = 0; i < 1 + Below(&random, 4); ++i) {
      if (round % 2) {
        image.file[scan + random() % (image.file.size() - scan)] = static_cast<uint8_t>(random());
      } else {  // an index that lies, its checksum made right
        const size_t at = 64 + random() % (image.encoded.size() - 64);
        image.encoded[at] = static_cast<char>(random());
      }
    }
    if (round % 2 == 0) Reseal(&image.encoded);
    RgbImage out;
    failed += !DecodeSegments(&decoder, image, RandomRegion(&random, image.frame), &out).ok();
  }
  EXPECT_GT(failed, 100) << "most damage must be noticed";
  // What was decoded before leaves no trace.
  JpegOptions options;
  options.sampling = AllSamplings()[1];
  options.width = 90;
  options.height = 70;
  IndexedJpeg image;
  ASSERT_TRUE(image.Make(MakeJpeg(options, &random), 8));
  ExpectEqualToLibjpeg(&decoder, image, {0, 0, 70, 90});
}

}  // namespace
}  // namespace headrace
