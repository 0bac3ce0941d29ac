#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "core/decode/entry/entry_builder.h"
#include "core/decode/entry/entry_data.h"
#include "tests/support/jpeg_maker.h"

namespace headrace {
namespace {

using testing::AllSamplings;
using testing::JpegOptions;
using testing::MakeJpeg;
using testing::Process;

absl::Span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

JpegOptions Photo() {
  JpegOptions options;
  options.width = 123;
  options.height = 77;
  options.sampling = AllSamplings()[1];
  return options;
}

TEST(JpegFrame, RefusesWhatCannotHaveEntryPoints) {
  std::mt19937 random(1);
  JpegOptions options = Photo();
  for (Process process : {Process::kScanPerComponent, Process::kProgressive, Process::kArithmetic}) {
    options.process = process;
    if (options.sampling.components() == 1 && process == Process::kScanPerComponent) continue;
    EXPECT_EQ(ParseJpegFrame(MakeJpeg(options, &random)).status().code(), absl::StatusCode::kUnimplemented);
  }
  options.process = Process::kBaseline;
  std::vector<uint8_t> other_jfif = MakeJpeg(options, &random);
  other_jfif[11] = 2;
  EXPECT_EQ(ParseJpegFrame(other_jfif).status().message(), "another version of JFIF");
  EXPECT_FALSE(ParseJpegFrame({}).ok());
}

TEST(JpegFrame, SurvivesEveryTruncationOfAHeader) {
  std::mt19937 random(2);
  const std::vector<uint8_t> file = MakeJpeg(Photo(), &random);
  const auto frame = ParseJpegFrame(file);
  ASSERT_TRUE(frame.ok());
  for (size_t size = 0; size < frame->scan_offset; ++size) {
    const std::vector<uint8_t> part(file.begin(), file.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_FALSE(ParseJpegFrame(part).ok()) << size;
  }
}

TEST(HuffmanSpec, IsUsableOnlyAsLibjpegAcceptsIt) {
  HuffmanSpec spec;
  EXPECT_FALSE(IsUsableHuffmanSpec(spec, false)) << "empty";
  spec.counts[0] = 1;
  spec.num_symbols = 1;
  EXPECT_TRUE(IsUsableHuffmanSpec(spec, true));
  spec.counts[0] = 2;
  spec.num_symbols = 2;
  EXPECT_FALSE(IsUsableHuffmanSpec(spec, true)) << "the all-ones code is used";
  spec.counts = {};
  spec.counts[1] = 1;
  spec.num_symbols = 1;
  spec.symbols[0] = 16;
  EXPECT_FALSE(IsUsableHuffmanSpec(spec, true)) << "a DC size above 15";
  EXPECT_TRUE(IsUsableHuffmanSpec(spec, false));
}

class Entries : public ::testing::Test {
 protected:
  void SetUp() override {
    std::mt19937 random(3);
    file_ = MakeJpeg(Photo(), &random);
    frame_ = *ParseJpegFrame(file_);
    EntryBuilder builder;
    points_ = *builder.Build(file_, frame_, 4);
    encoded_ = EncodeEntries(frame_, points_, 4096);
  }
  std::vector<uint8_t> file_;
  JpegFrame frame_;
  EntryPoints points_;
  std::string encoded_;
};

TEST_F(Entries, ComeBackAsTheyWere) {
  const auto view = EntryView::Parse(Bytes(encoded_), file_.size());
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->tables_offset(), 4096u);
  EXPECT_EQ(view->interval(), 4);
  size_t i = 0;
  for (int row = 0; row < view->mcu_rows(); ++row) {
    for (int segment = 0; segment < view->segments_per_row(); ++segment, ++i) {
      EntryPoint point;
      ASSERT_TRUE(view->Point(row, segment, &point));
      EXPECT_EQ(point.byte, points_.points[i].byte);
      EXPECT_EQ(point.bit, points_.points[i].bit);
      for (int c = 0; c < frame_.num_components; ++c) EXPECT_EQ(point.dc[c], points_.points[i].dc[c]);
    }
  }
  EXPECT_EQ(i, points_.points.size());
  EntryPoint point;
  EXPECT_FALSE(view->Point(-1, 0, &point));
  EXPECT_FALSE(view->Point(0, view->segments_per_row(), &point));
  EXPECT_FALSE(view->Point(view->mcu_rows(), 0, &point));
}

TEST_F(Entries, AreRefusedWhenAnyBitIsWrong) {
  for (size_t bit = 0; bit < encoded_.size() * 8; ++bit) {
    std::string bad = encoded_;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
    EXPECT_EQ(EntryView::Parse(Bytes(bad), file_.size()).status().code(), absl::StatusCode::kDataLoss) << bit;
  }
}

TEST_F(Entries, AreRefusedWhenTheScanReachesBehindTheFile) {
  EXPECT_FALSE(EntryView::Parse(Bytes(encoded_), frame_.scan_offset + points_.scan_bytes - 1).ok());
}

TEST_F(Entries, TablesComeBackAsTheyWere) {
  const std::string tables = EncodeTables(frame_);
  EXPECT_EQ(*TablesBytes(Bytes(tables)), tables.size());
  JpegFrame frame = EntryView::Parse(Bytes(encoded_), file_.size())->frame();
  ASSERT_TRUE(ApplyTables(Bytes(tables), &frame).ok());
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(frame.quant[i], frame_.quant[i]);
    if (frame_.dc_mask >> i & 1) {
      EXPECT_EQ(frame.dc[i], frame_.dc[i]);
    }
    if (frame_.ac_mask >> i & 1) {
      EXPECT_EQ(frame.ac[i], frame_.ac[i]);
    }
  }
  for (size_t size = 0; size < tables.size(); ++size) {
    EXPECT_FALSE(ApplyTables(Bytes(tables).subspan(0, size), &frame).ok()) << size;
  }
}

TEST_F(Entries, AreBuiltOnlyFromAFlawlessScan) {
  EntryBuilder builder;
  std::vector<uint8_t> cut(file_.begin(), file_.end() - 2);
  EXPECT_FALSE(builder.Build(cut, frame_, 8).ok()) << "no EOI";
  std::vector<uint8_t> filled = file_;
  filled.insert(filled.end() - 2, kMaxEndBytes - 2, 0xFF);
  EXPECT_TRUE(builder.Build(filled, frame_, 8).ok());
  filled.insert(filled.end() - 2, 0xFF);
  EXPECT_FALSE(builder.Build(filled, frame_, 8).ok()) << "fill bytes";
  std::vector<uint8_t> longer = file_;
  longer.insert(longer.end() - 2, 4, 0x55);
  EXPECT_FALSE(builder.Build(longer, frame_, 8).ok()) << "bytes left over";
  std::vector<uint8_t> marker = file_;
  marker[frame_.scan_offset + 20] = 0xFF;
  marker[frame_.scan_offset + 21] = 0xD0;
  EXPECT_FALSE(builder.Build(marker, frame_, 8).ok()) << "a restart marker where none belongs";
}

TEST_F(Entries, BuildingSurvivesRandomDamage) {
  std::mt19937 random(4);
  EntryBuilder builder;
  for (int round = 0; round < 800; ++round) {
    std::vector<uint8_t> bad = file_;
    for (int i = 0; i < 3; ++i) bad[random() % bad.size()] = static_cast<uint8_t>(random());
    const auto frame = ParseJpegFrame(bad);
    if (frame.ok()) (void)builder.Build(bad, *frame, 1 + static_cast<int>(random() % 16));
  }
}

}  // namespace
}  // namespace headrace
