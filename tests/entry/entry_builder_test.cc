// Entry points of scans that encoders write seldom or never, checked by decoding from each of them and comparing with libjpeg
// (packer/entry_check.h).
#include "core/decode/entry/entry_builder.h"

#include <gmock/gmock.h>

#include <random>

#include "core/decode/jpeg/jpeg_coefficients.h"
#include "packer/entry_check.h"
#include "tests/support/scan_writer.h"
#include "tests/support/test_files.h"

namespace headrace {
namespace {

using ::headrace::testing::FilesBelow;
using ::headrace::testing::ScanOptions;
using ::headrace::testing::TestDataFolder;
using ::headrace::testing::WriteRandomScan;
using ::testing::HasSubstr;
using ::testing::Not;

using File = std::vector<uint8_t>;

absl::Status BuildAndCheck(const File& file, int interval) {
  HEADRACE_ASSIGN_OR_RETURN(const JpegFrame frame, ParseJpegFrame(file));
  HEADRACE_ASSIGN_OR_RETURN(const EntryPoints points, EntryBuilder().Build(file, frame, interval));
  JpegCoefficients coefficients;
  HEADRACE_RETURN_IF_ERROR(JpegTranscoder().Read(file, &coefficients));
  return CheckEntries(file, EncodeTables(frame), EncodeEntries(frame, points, 0), coefficients);
}

const std::vector<std::pair<std::vector<int>, std::vector<int>>>& Samplings() {
  static const std::vector<std::pair<std::vector<int>, std::vector<int>>> samplings = {
      {{1}, {1}},          {{2}, {2}},          {{1, 1, 1}, {1, 1, 1}}, {{2, 1, 1}, {2, 1, 1}},
      {{1, 2, 1}, {2, 1, 1}}, {{4, 1, 1}, {1, 2, 1}}, {{1, 1, 1, 1}, {1, 1, 1, 1}}, {{2, 1, 1, 2}, {1, 1, 1, 2}}};
  return samplings;
}

TEST(EntryBuilder, FollowsTablesOfEveryShape) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    ScanOptions options;
    std::tie(options.h, options.v) = Samplings()[random() % Samplings().size()];
    options.width = 1 + static_cast<int>(random() % 150);
    options.height = 1 + static_cast<int>(random() % 100);
    options.restart_interval = round % 3 == 0 ? 1 + static_cast<int>(random() % 20) : 0;
    options.max_fill_bytes = round % 2 == 0 ? 3 : 0;
    options.many_ones = round % 4 == 0;
    options.longest_code = 10 + static_cast<int>(random() % 7);
    const File file = WriteRandomScan(options, &random);
    for (int interval : {1, 4, 8, 32}) {
      const absl::Status status = BuildAndCheck(file, interval);
      ASSERT_TRUE(status.ok()) << "round " << round << ", K " << interval << ": " << status;
    }
  }
}

// Short scans are walked in one piece, longer ones in four at once, those above 128 kB in several rounds of four.
TEST(EntryBuilder, FollowsScansOfEveryLength) {
  std::mt19937 random(5);
  size_t shortest = SIZE_MAX, longest = 0;
  for (int round = 0; round < 80; ++round) {
    ScanOptions options;
    std::tie(options.h, options.v) = Samplings()[static_cast<size_t>(round) % Samplings().size()];
    options.width = 40 + static_cast<int>(random() % 60) * (1 + round / 3);
    options.height = 400;
    options.restart_interval = round % 5 == 0 ? 700 : 0;
    options.longest_code = 10 + static_cast<int>(random() % 7);
    options.many_ones = round % 9 == 0;
    const File file = WriteRandomScan(options, &random);
    shortest = std::min(shortest, file.size());
    longest = std::max(longest, file.size());
    const absl::Status status = BuildAndCheck(file, 1);
    ASSERT_TRUE(status.ok()) << "round " << round << ": " << status;
  }
  EXPECT_LT(shortest, 20000u);
  EXPECT_GT(longest, 300000u);
}

TEST(EntryBuilder, MeetsStuffedBytesAtEveryBitOfAnEntryPoint) {
  std::mt19937 random(2);
  ScanOptions options;
  options.width = 100;
  options.many_ones = true;
  std::array<int, 8> in_front = {}, at = {};  // by the entry point's bit
  for (int round = 0; round < 1500; ++round) {
    const File file = WriteRandomScan(options, &random);
    ASSERT_TRUE(BuildAndCheck(file, 1).ok());
    const JpegFrame frame = *ParseJpegFrame(file);
    const EntryPoints points = *EntryBuilder().Build(file, frame, 1);
    for (const EntryPoint& point : points.points) {
      const uint8_t* byte = &file[frame.scan_offset + point.byte];
      at[point.bit] += *byte == 0xFF;
      in_front[point.bit] += point.byte > 1 && byte[-1] == 0 && byte[-2] == 0xFF;
    }
  }
  for (size_t bit = 0; bit < 8; ++bit) {
    EXPECT_GT(at[bit], 3) << bit;
    EXPECT_GT(in_front[bit], 3) << bit;
  }
}

TEST(EntryBuilder, RefusesOrIsRightWhateverBitOfTheScanIsFlipped) {
  std::mt19937 random(3);
  int refused = 0, kept = 0;
  for (int round = 0; round < 3000; ++round) {
    ScanOptions options;
    std::tie(options.h, options.v) = Samplings()[random() % Samplings().size()];
    options.width = round % 10 == 0 ? 400 : 60;
    options.restart_interval = round % 2 == 0 ? 3 : 0;
    File file = WriteRandomScan(options, &random);
    const size_t begin = ParseJpegFrame(file)->scan_offset;
    file[begin + random() % (file.size() - begin)] ^= static_cast<uint8_t>(1 << random() % 8);
    const JpegFrame frame = *ParseJpegFrame(file);
    const auto points = EntryBuilder().Build(file, frame, 4);
    if (!points.ok()) {
      ++refused;
      continue;
    }
    // What it accepts libjpeg reads without a warning, and every entry point leads to libjpeg's coefficients.
    ++kept;
    const absl::Status status = BuildAndCheck(file, 4);
    EXPECT_TRUE(status.ok()) << "round " << round << ": " << status;
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(kept, 100);
}

TEST(EntryBuilder, RefusesRowsThatAnEntryPointCannotSpan) {
  std::mt19937 random(4);
  ScanOptions options;
  options.width = 16;
  options.height = 8;
  options.restart_interval = 1;
  File file = WriteRandomScan(options, &random);
  ASSERT_TRUE(BuildAndCheck(file, 1).ok());
  const uint8_t restart[] = {0xFF, 0xD0};
  const auto marker = std::search(file.begin() + ParseJpegFrame(file)->scan_offset, file.end(), restart, restart + 2);
  file.insert(marker, kMaxRowSpan + 1, 0xFF);
  EXPECT_THAT(BuildAndCheck(file, 1).ToString(), HasSubstr("a row of MCUs that is too long"));
  EXPECT_TRUE(BuildAndCheck(file, 2).ok()) << "one segment has nothing to span";
}

TEST(EntryBuilder, IsRightForEveryTestImage) {
  for (const File& file : FilesBelow(TestDataFolder())) {
    if (!ParseJpegFrame(file).ok()) continue;
    const absl::Status status = BuildAndCheck(file, 8);
    // Flaws are found by counting; what libjpeg or the check finds beyond them is a mistake.
    EXPECT_FALSE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(status.ToString(), Not(HasSubstr("JPEG: ")));
  }
}

TEST(EntryBuilder, MakesAtMostThreeAndAHalfPercentOfPhotos) {
  if (!std::filesystem::is_directory(TestDataFolder() / "photos")) GTEST_SKIP() << "no photos in " << TestDataFolder();
  uint64_t image_bytes = 0, entry_bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(TestDataFolder() / "photos")) {
    if (!entry.is_regular_file()) continue;
    const auto bytes = ReadFile(entry.path(), 64 << 20);
    const File file(bytes->begin(), bytes->end());
    const JpegFrame frame = *ParseJpegFrame(file);
    const size_t pieces[] = {EncodeEntries(frame, *EntryBuilder().Build(file, frame, 8), 0).size(),
                             EncodeTables(frame).size()};
    for (size_t piece : pieces) entry_bytes += (piece + 63) / 64 * 64;
    image_bytes += file.size();
  }
  EXPECT_LE(static_cast<double>(entry_bytes), 0.035 * static_cast<double>(image_bytes));
}

}  // namespace
}  // namespace headrace
