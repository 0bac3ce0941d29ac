// Transcoding, and the check of entry data against libjpeg.
#include "packer/entry_maker.h"

#include <gmock/gmock.h>

#include <random>

#include "core/decode/probe.h"
#include "packer/entry_check.h"
#include "tests/support/jpeg_maker.h"

namespace headrace {
namespace {

using ::headrace::testing::AllSamplings;
using ::headrace::testing::DecodeWhole;
using ::headrace::testing::JpegOptions;
using ::headrace::testing::MakeJpeg;
using ::headrace::testing::Process;
using ::headrace::testing::Sampling;
using ::headrace::testing::WithSegment;
using ::testing::HasSubstr;

using File = std::vector<uint8_t>;

constexpr Process kOthers[] = {Process::kScanPerComponent, Process::kProgressive, Process::kArithmetic};

// "" and `out` unchanged when the file stays.
std::string Transcode(const File& file, File* out, ImageInfo* image = nullptr) {
  std::mutex large;
  EntryMaker maker({8, false}, &large);
  ImageInfo made = *ProbeImage(file);
  const std::string process = maker.Transcode(file, &made, out);
  if (image != nullptr) *image = made;
  return process;
}

JpegCoefficients Coefficients(const File& file) {
  JpegCoefficients coefficients;
  const absl::Status status = JpegTranscoder().Read(file, &coefficients);
  EXPECT_TRUE(status.ok()) << status;
  return coefficients;
}

// Where the first scan's header begins.
size_t FindScan(const File& file, size_t from = 0) {
  for (size_t i = from; i + 1 < file.size(); ++i) {
    if (file[i] == 0xFF && file[i + 1] == 0xDA) return i;
  }
  return file.size();
}

TEST(Transcoding, KeepsThePixelsOfEverySamplingAndProcess) {
  std::mt19937 random(1);
  int transcoded = 0;
  for (const Sampling& sampling : AllSamplings()) {
    for (Process process : kOthers) {
      if (sampling.components() == 1 && process == Process::kScanPerComponent) continue;
      for (int restart_interval : {0, 3}) {
        JpegOptions options{static_cast<int>(20 + random() % 80), static_cast<int>(20 + random() % 80), sampling, process,
                            static_cast<int>(20 + random() % 80), restart_interval,
                            sampling.components() == 4 && random() % 2 == 0};
        const File file = MakeJpeg(options, &random);
        File out;
        ImageInfo image;
        const std::string was = Transcode(file, &out, &image);
        if (was.empty()) {  // more than ten blocks an MCU
          int blocks = 0;
          for (size_t c = 0; c < sampling.h.size(); ++c) blocks += sampling.h[c] * sampling.v[c];
          EXPECT_GT(blocks, 10) << sampling.name;
          continue;
        }
        ++transcoded;
        EXPECT_TRUE(ParseJpegFrame(out).ok()) << sampling.name;
        EXPECT_EQ(DecodeWhole(out), DecodeWhole(file)) << sampling.name << " " << was;
        EXPECT_TRUE(image.transcoded);
        EXPECT_FALSE(image.progressive);
        const ImageInfo before = *ProbeImage(file);
        EXPECT_EQ(before.progressive, process == Process::kProgressive);
        EXPECT_FALSE(before.transcoded);
        File again;
        EXPECT_EQ(Transcode(file, &again), was);
        EXPECT_EQ(again, out) << "the same bytes give the same bytes";
        EXPECT_EQ(Transcode(out, &again), "") << "it is baseline now";
      }
    }
  }
  EXPECT_GT(transcoded, 60);
}

TEST(Transcoding, SaysWhatTheFileWas) {
  std::mt19937 random(2);
  JpegOptions options;
  options.sampling = AllSamplings()[1];
  const char* const expected[] = {"several scans", "progressive", "arithmetic"};
  for (size_t i = 0; i < 3; ++i) {
    options.process = kOthers[i];
    File out;
    EXPECT_EQ(Transcode(MakeJpeg(options, &random), &out), expected[i]);
  }
  options.process = Process::kBaseline;
  File out;
  EXPECT_EQ(Transcode(MakeJpeg(options, &random), &out), "");
}

TEST(Transcoding, KeepsTheMarkersInTheirOrder) {
  std::mt19937 random(3);
  JpegOptions options;
  options.sampling = AllSamplings()[1];
  options.process = Process::kProgressive;
  File file = MakeJpeg(options, &random);
  const std::string exif(
      "Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0", 32);
  std::string icc(60000, 'i');
  icc.replace(0, 14, std::string("ICC_PROFILE\0\x01\x01", 14));
  file = WithSegment(WithSegment(WithSegment(file, 0xFE, "a comment"), 0xE2, icc), 0xE1, exif);
  File out;
  ImageInfo image;
  ASSERT_EQ(Transcode(file, &out, &image), "progressive");
  EXPECT_EQ(image.orientation, 6);
  const std::string before(file.begin(), file.end()), after(out.begin(), out.end());
  const size_t kept = after.find("\xFF\xEF");  // the mark
  ASSERT_NE(kept, std::string::npos);
  EXPECT_THAT(after.substr(0, kept), HasSubstr(exif));
  EXPECT_EQ(after.substr(0, kept), before.substr(0, kept)) << "everything up to the mark is as it was";
}

TEST(Transcoding, LeavesIncompleteProgressiveFilesAlone) {
  std::mt19937 random(4);
  JpegOptions options{100, 60, AllSamplings()[1], Process::kProgressive, 90, 0, false};
  const File file = MakeJpeg(options, &random);
  int scans = 0;
  for (size_t scan = FindScan(file); scan < file.size(); scan = FindScan(file, scan + 2)) {
    if (scans++ == 0) continue;
    File cut(file.begin(), file.begin() + static_cast<ptrdiff_t>(scan));
    cut.insert(cut.end(), {0xFF, 0xD9});
    File out;
    EXPECT_EQ(Transcode(cut, &out), "") << "after " << scans - 1 << " scans";
  }
  EXPECT_GT(scans, 3);
}

TEST(Transcoding, LeavesFilesWithMarkersBetweenTheirScansAlone) {
  std::mt19937 random(5);
  JpegOptions options{100, 60, AllSamplings()[1], Process::kProgressive, 90, 0, false};
  File file = MakeJpeg(options, &random), out;
  ASSERT_EQ(Transcode(file, &out), "progressive");
  const uint8_t comment[] = {0xFF, 0xFE, 0, 4, 'h', 'i'};
  file.insert(file.begin() + static_cast<ptrdiff_t>(FindScan(file, FindScan(file) + 2)), comment, comment + 6);
  EXPECT_EQ(Transcode(file, &out), "");
}

TEST(Transcoding, OfDamagedFilesKeepsThePixelsOrDoesNotHappen) {
  std::mt19937 random(6);
  int kept = 0, transcoded = 0;
  for (int round = 0; round < 400; ++round) {
    JpegOptions options{60, 50, AllSamplings()[random() % AllSamplings().size()], kOthers[1 + random() % 2], 80, 0, false};
    File file = MakeJpeg(options, &random);
    file[random() % file.size()] ^= static_cast<uint8_t>(1 << random() % 8);
    if (!ProbeImage(file).ok()) continue;
    File out;
    if (Transcode(file, &out).empty()) {
      ++kept;
      continue;
    }
    ++transcoded;
    EXPECT_TRUE(HaveSameBlocks(Coefficients(file), Coefficients(out))) << round;
    EXPECT_EQ(DecodeWhole(file), DecodeWhole(out)) << round;
  }
  EXPECT_GT(kept, 50);
  EXPECT_GT(transcoded, 20);
}

// What is checked against libjpeg's coefficients.
class EntryCheck : public ::testing::Test {
 protected:
  void Make(const JpegOptions& options, int interval) {
    file_ = MakeJpeg(options, &random_);
    frame_ = *ParseJpegFrame(file_);
    points_ = *EntryBuilder().Build(file_, frame_, interval);
    expected_ = Coefficients(file_);
  }
  absl::Status Check() {
    return CheckEntries(file_, EncodeTables(frame_), EncodeEntries(frame_, points_, 0), expected_);
  }

  std::mt19937 random_{7};
  File file_;
  JpegFrame frame_;
  EntryPoints points_;
  JpegCoefficients expected_;
};

TEST_F(EntryCheck, AcceptsEverySamplingIntervalAndRestartInterval) {
  for (const Sampling& sampling : AllSamplings()) {
    for (int interval : {1, 4, 8, 32}) {
      for (int restart_interval : {0, 1, 3, 8}) {
        JpegOptions options{static_cast<int>(1 + random_() % 130), static_cast<int>(1 + random_() % 130), sampling,
                            Process::kBaseline, static_cast<int>(10 + random_() % 90), restart_interval, false};
        const File file = MakeJpeg(options, &random_);
        if (!ParseJpegFrame(file).ok()) continue;  // several scans
        Make(options, interval);
        const absl::Status status = Check();
        EXPECT_TRUE(status.ok()) << sampling.name << " K " << interval << " restart " << restart_interval << ": " << status;
      }
    }
  }
}

TEST_F(EntryCheck, FindsEveryWrongEntryPoint) {
  for (int restart_interval : {0, 5}) {
    Make({120, 90, AllSamplings()[1], Process::kBaseline, 90, restart_interval, false}, 4);
    const std::vector<EntryPoint> right = points_.points;
    for (size_t i = 0; i < right.size(); ++i) {
      for (int what = 0; what < 4; ++what) {
        points_.points = right;
        EntryPoint& point = points_.points[i];
        if (what == 0) point.bit = static_cast<uint8_t>((point.bit + 1) % 8);
        if (what == 1) ++point.byte;
        if (what == 2) point.dc[0] = static_cast<int16_t>(point.dc[0] + 1);
        if (what == 3) point.dc[2] = static_cast<int16_t>(point.dc[2] - 1);
        EXPECT_TRUE(absl::IsDataLoss(Check())) << "point " << i << ", change " << what;
      }
    }
  }
}

TEST_F(EntryCheck, FindsChangedCoefficientsAndTables) {
  Make({120, 90, AllSamplings()[1], Process::kBaseline, 90, 0, false}, 8);
  ASSERT_TRUE(Check().ok());
  const JpegCoefficients right = expected_;
  for (int round = 0; round < 50; ++round) {
    expected_ = right;
    std::vector<int16_t>& blocks = expected_.components[random_() % 3].blocks;
    ++blocks[random_() % blocks.size()];
    EXPECT_TRUE(absl::IsDataLoss(Check()));
  }
  expected_ = right;
  std::swap(frame_.ac[0].symbols[0], frame_.ac[0].symbols[1]);
  EXPECT_TRUE(absl::IsDataLoss(Check()));
}

TEST(EntryMaker, LeavesNothingForWhatCannotHaveEntries) {
  std::mt19937 random(8);
  std::mutex large;
  EntryMaker maker({8, true}, &large);
  JpegOptions options{60, 50, AllSamplings()[1], Process::kBaseline, 80, 0, false};
  std::string tables, entries;
  File file = MakeJpeg(options, &random);
  EXPECT_TRUE(maker.Make(file, *ProbeImage(file), &tables, &entries).ok());
  EXPECT_FALSE(entries.empty());
  ImageInfo other = *ProbeImage(file);
  ++other.width;
  EXPECT_TRUE(maker.Make(file, other, &tables, &entries).ok());
  EXPECT_TRUE(entries.empty()) << "another size than the probe's";
  file.pop_back();
  EXPECT_TRUE(maker.Make(file, *ProbeImage(file), &tables, &entries).ok());
  EXPECT_TRUE(entries.empty()) << "cut off";
  options.process = Process::kProgressive;
  file = MakeJpeg(options, &random);
  EXPECT_TRUE(maker.Make(file, *ProbeImage(file), &tables, &entries).ok());
  EXPECT_TRUE(entries.empty()) << "progressive";
}

}  // namespace
}  // namespace headrace
