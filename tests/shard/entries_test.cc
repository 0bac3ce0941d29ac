// Entry data as an opened dataset gives it: whole, damaged, and made to look whole.
#include <gmock/gmock.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "core/shard/dataset.h"
#include "core/shard/held_index.h"
#include "core/shard/index_file.h"
#include "core/shard/manifest.h"
#include "core/base/file.h"
#include "tests/shard/small_shards.h"
#include "tests/support/tiny_dataset.h"

namespace {
thread_local int64_t allocations = 0;
}  // namespace

void* operator new(size_t bytes) {
  ++allocations;
  void* memory = std::malloc(bytes > 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace headrace {
namespace {

using ::headrace::testing::AsBytes;
using ::headrace::testing::TinyDataset;
using ::headrace::testing::TinyDatasetOptions;
using ::testing::HasSubstr;

std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// All that a decoder can learn from entries, as one number.
uint64_t Digest(const EntryView& view, const JpegFrame& frame) {
  std::string all = EncodeTables(frame);
  const JpegShape& shape = view.frame();
  for (uint32_t number : {uint32_t{shape.width}, uint32_t{shape.height}, uint32_t{shape.num_components},
                          shape.restart_interval, shape.scan_offset, view.scan_bytes(),
                          static_cast<uint32_t>(view.interval()), static_cast<uint32_t>(shape.color)}) {
    all.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  for (const JpegComponent& c : shape.components) all += {char(c.h), char(c.v), char(c.quant), char(c.dc), char(c.ac)};
  for (int row = 0; row < view.mcu_rows(); ++row) {
    for (int segment = 0; segment < view.segments_per_row(); ++segment) {
      EntryPoint point;
      uint32_t end = 0;
      const bool good = view.Point(row, segment, &point) && view.SegmentEnd(row, segment, &end);
      if (good) {
        EXPECT_LE(point.byte, view.scan_bytes());
        EXPECT_LE(end, view.scan_bytes());
        EXPECT_LT(point.bit, 8);
      }
      all += good ? 'g' : 'b';
      all.append(reinterpret_cast<const char*>(&point.byte), 4);
      all.append(reinterpret_cast<const char*>(point.dc.data()), 8);
      all += static_cast<char>(point.bit);
    }
  }
  return XXH3_64bits(all.data(), all.size());
}

// Of every sample; 0 where ReadEntries fails.
std::vector<uint64_t> Digests(const Dataset& dataset, const HeldIndex* held = nullptr) {
  std::vector<uint64_t> digests;
  SampleRow row;
  ImageEntries entries;
  for (uint64_t sample = 0; sample < dataset.size(); ++sample) {
    EXPECT_TRUE(dataset.ReadRow(sample, &row, held).ok());
    const absl::StatusOr<bool> has = dataset.ReadEntries(row, &entries, held);
    if (!has.ok()) {
      EXPECT_TRUE(absl::IsDataLoss(has.status())) << has.status();
      EXPECT_THAT(has.status().ToString(), HasSubstr("sample " + std::to_string(sample)));
    }
    digests.push_back(has.ok() && *has ? Digest(entries.view(), entries.frame()) : 0);
  }
  return digests;
}

class EntriesOfADataset : public ::testing::Test {
 protected:
  EntriesOfADataset() : tiny_({.samples = 24, .files = 12, .side_px = 16, .shard_bytes = uint64_t{1} << 20}) {
    dataset_ = tiny_.Open();
    path_ = ShardIndexPath(tiny_.dir(), 0);
    index_ = ReadBytes(path_);
    UniqueFd fd = *OpenForReading(path_);
    header_ = *ReadIndexHeader(fd.get(), index_.size(), path_);
  }

  TinyDataset tiny_;
  std::shared_ptr<const Dataset> dataset_;
  std::string path_, index_;
  IndexHeader header_;
};

TEST_F(EntriesOfADataset, AreWholeAndEqualTablesAreStoredOnce) {
  const std::vector<uint64_t> digests = Digests(*dataset_);
  EXPECT_EQ(std::count(digests.begin(), digests.end(), 0u), 0);
  SampleRow row;
  ImageEntries entries;
  std::set<uint64_t> tables;
  uint64_t owners = 0, end = 0;
  for (uint64_t sample = 0; sample < dataset_->size(); ++sample) {
    ASSERT_TRUE(dataset_->ReadRow(sample, &row).ok());
    ASSERT_TRUE(*dataset_->ReadEntries(row, &entries));
    EXPECT_EQ(row.entries_offset, end) << "one behind the other";
    EXPECT_EQ(entries.view().tables_offset() % 64, 0u);
    owners += tables.insert(entries.view().tables_offset()).second;
    EXPECT_EQ(row.entries_bytes > entries.view().bytes(), entries.view().tables_offset() >= row.entries_offset);
    end = (row.entries_offset + row.entries_bytes + 63) / 64 * 64;
  }
  EXPECT_EQ(end, header_.entries_bytes);
  EXPECT_LT(owners, 5u) << "libjpeg's own tables at one quality";
  EXPECT_EQ(header_.entry_interval, 8u);
}

TEST_F(EntriesOfADataset, AreReadFromAHeldIndexAlsoWhenTheFileIsGone) {
  const std::vector<uint64_t> expected = Digests(*dataset_);
  HeldIndex held(*dataset_), late(*dataset_);
  EXPECT_EQ(Digests(*dataset_, &held), expected) << "not there yet";
  EXPECT_TRUE(held.Find(0).empty());
  ASSERT_TRUE(held.Add(*dataset_, 0).ok());
  EXPECT_EQ(held.Find(0).size(), dataset_->all_index_bytes());
  std::filesystem::resize_file(path_, index_.size() / 2);
  EXPECT_EQ(Digests(*dataset_, &held), expected);
  EXPECT_TRUE(held.verified()->Contains(dataset_->size() - 1));
  EXPECT_EQ(Digests(*dataset_, &held), expected) << "without looking at the checksums again";
  const absl::Status cut = late.Add(*dataset_, 0);
  EXPECT_TRUE(absl::IsDataLoss(cut)) << cut;
  EXPECT_THAT(cut.ToString(), HasSubstr("00000.index"));
}

TEST_F(EntriesOfADataset, DamagedInAHeldIndexAreFoundByTheirChecksum) {
  std::string changed = index_;
  changed[header_.entries_offset() + 70] ^= 1;
  WriteBytes(path_, changed);
  HeldIndex held(*dataset_);
  ASSERT_TRUE(held.Add(*dataset_, 0).ok());
  const std::vector<uint64_t> digests = Digests(*dataset_, &held);
  EXPECT_EQ(digests[0], 0u);
  EXPECT_EQ(Digests(*dataset_, &held), digests) << "a wrong checksum stays wrong";
  EXPECT_EQ(std::count(digests.begin(), digests.end(), 0u), 1);
}

TEST_F(EntriesOfADataset, AreReadByManyThreadsWithoutAllocating) {
  const std::vector<uint64_t> expected = Digests(*dataset_);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0, allocated = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      SampleRow row;
      ImageEntries entries;
      std::mt19937 random(static_cast<uint32_t>(i));
      for (uint64_t sample = 0; sample < dataset_->size(); ++sample) {  // everything has its size
        wrong += !dataset_->ReadRow(sample, &row).ok() || !dataset_->ReadEntries(row, &entries).ok();
      }
      for (int round = 0; round < 500; ++round) {
        const uint64_t sample = random() % dataset_->size();
        const int64_t before = allocations;
        const bool read = dataset_->ReadRow(sample, &row).ok() && *dataset_->ReadEntries(row, &entries);
        allocated += allocations != before;
        wrong += !read || Digest(entries.view(), entries.frame()) != expected[sample];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(allocated, 0);
}

TEST_F(EntriesOfADataset, AreRightOrAnErrorWhateverByteIsFlipped) {
  const std::vector<uint64_t> expected = Digests(*dataset_);
  std::mt19937 random(5);
  const uint64_t begin = header_.entries_offset();
  int failures = 0;
  for (uint64_t at = begin; at < index_.size(); at += 1 + random() % 5) {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(index_[at] ^ static_cast<char>(1 << random() % 8)));
    file.flush();
    // Opened anew: what was read before is kept.
    const std::vector<uint64_t> digests = Digests(*tiny_.Open());
    for (size_t i = 0; i < digests.size(); ++i) {
      if (digests[i] == 0) {
        ++failures;
      } else {
        ASSERT_EQ(digests[i], expected[i]) << "byte " << at << ", sample " << i;
      }
    }
    file.seekp(static_cast<std::streamoff>(at));
    file.put(index_[at]);
  }
  EXPECT_GT(failures, 100);
}

TEST_F(EntriesOfADataset, OfAnotherImageAreRefused) {
  const RowLayout layout = MakeRowLayout(dataset_->fields());
  auto* rows = reinterpret_cast<uint8_t*>(index_.data()) + header_.rows_offset();
  std::memcpy(rows + 32, rows + layout.row_bytes + 32, 16);  // sample 0 points to the entry data of sample 1
  SealRow(layout, rows);
  WriteBytes(path_, index_);
  const auto dataset = tiny_.Open();
  SampleRow row;
  ImageEntries entries;
  ASSERT_TRUE(dataset->ReadRow(0, &row).ok());
  EXPECT_THAT(dataset->ReadEntries(row, &entries).status().ToString(), HasSubstr("entry data of another image"));
  ASSERT_TRUE(dataset->ReadRow(1, &row).ok());
  EXPECT_TRUE(dataset->ReadEntries(row, &entries).ok());
}

TEST_F(EntriesOfADataset, ThatAreCutOffWhileTheyAreServedAreAStatus) {
  ASSERT_EQ(::truncate(path_.c_str(), static_cast<off_t>(header_.entries_offset() + 200)), 0);
  const std::vector<uint64_t> digests = Digests(*dataset_);
  EXPECT_EQ(std::count(digests.begin(), digests.end(), 0u), 24);
}

TEST_F(EntriesOfADataset, WithTablesThatLieNowhereAreRefused) {
  SampleRow row;
  ImageEntries entries;
  ASSERT_TRUE(dataset_->ReadRow(23, &row).ok());
  std::string all = index_.substr(header_.entries_offset());
  for (uint64_t place : {header_.entries_bytes, header_.entries_bytes - 64, UINT64_MAX, UINT64_MAX - 63, uint64_t{1} << 63,
                         uint64_t{0}, row.entries_offset, row.entries_offset + 64}) {
    std::string changed = all.substr(row.entries_offset, row.entries_bytes);
    const size_t whole = EntryView::Parse(AsBytes(changed), UINT32_MAX)->bytes();
    changed.resize(whole);
    SetTablesOffset(place, &changed);
    std::string index = index_;
    index.replace(header_.entries_offset() + row.entries_offset, whole, changed);
    WriteBytes(path_, index);
    const auto dataset = tiny_.Open();
    EXPECT_TRUE(absl::IsDataLoss(dataset->ReadEntries(row, &entries).status())) << place;
  }
}

// Whoever writes entry data can seal it as well.
TEST_F(EntriesOfADataset, MadeToLookWholeStayInsideTheirBounds) {
  SampleRow row;
  std::mt19937 random(9);
  int parsed = 0, with_tables = 0;
  for (int round = 0; round < 20000; ++round) {
    const uint64_t sample = random() % dataset_->size();
    ASSERT_TRUE(dataset_->ReadRow(sample, &row).ok());
    std::string data = index_.substr(header_.entries_offset() + row.entries_offset, row.entries_bytes);
    const auto seal = [&](size_t begin, size_t end) {
      const uint64_t hash = XXH3_64bits(&data[begin + 8], end - begin - 8);
      std::memcpy(&data[begin], &hash, 8);
    };
    const size_t whole = EntryView::Parse(AsBytes(data), UINT32_MAX)->bytes();
    const size_t changed = round % 2 == 0 ? 64 : data.size();
    for (uint32_t i = 0; i <= random() % 3; ++i) data[8 + random() % (changed - 8)] = static_cast<char>(random());
    seal(0, whole);
    const size_t tables = (whole + 63) / 64 * 64;
    if (data.size() > tables) seal(tables, data.size());
    // A copy of exactly this size, so that a sanitizer sees every byte outside.
    const std::vector<uint8_t> exact(data.begin(), data.end());
    const auto view = EntryView::Parse(exact, row.values[0].location.length);
    if (!view.ok()) continue;
    ++parsed;
    ASSERT_LE(uint64_t{view->frame().scan_offset} + view->scan_bytes(), row.values[0].location.length);
    ASSERT_LE(view->frame().blocks_per_mcu(), 10);
    JpegFrame frame = view->frame();
    if (data.size() > tables) with_tables += ApplyTables(absl::MakeConstSpan(exact).subspan(tables), &frame).ok();
    Digest(*view, frame);
  }
  EXPECT_GT(parsed, 5000);
  EXPECT_GT(with_tables, 100);
}

// The image of tests/golden/shard/make_entries.py.
TEST(EntryFormat, IsWhatTheDocumentSays) {
  JpegFrame frame;
  frame.width = 75;
  frame.height = 41;
  frame.num_components = 4;
  frame.color = JpegColor::kYcck;
  frame.components = {JpegComponent{2, 2, 0, 0, 0}, {1, 1, 2, 1, 3}, {1, 1, 2, 1, 3}, {2, 1, 0, 0, 0}};
  frame.restart_interval = 6;
  frame.scan_offset = 600;
  frame.quant_mask = 5;
  frame.dc_mask = 3;
  frame.ac_mask = 9;
  for (uint16_t i = 0; i < 64; ++i) {
    frame.quant[0][i] = static_cast<uint16_t>(1 + i);
    frame.quant[2][i] = static_cast<uint16_t>(65535 - i);
  }
  const auto spec = [](std::vector<uint8_t> counts, const std::vector<uint8_t>& symbols) {
    HuffmanSpec result;
    std::copy(counts.begin(), counts.end(), result.counts.begin());
    std::copy(symbols.begin(), symbols.end(), result.symbols.begin());
    result.num_symbols = static_cast<uint16_t>(symbols.size());
    return result;
  };
  frame.dc = {spec({0, 2}, {3, 0}), spec({1, 1, 1}, {0, 11, 15})};
  frame.ac[0] = spec({0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, {0x00, 0xF0, 0x21, 0xFF});
  frame.ac[3] = spec({1}, {0x01});
  EntryPoints points;
  points.interval = 2;
  points.scan_bytes = 50000000;
  points.points = {{0, 0, {}},
                   {37, 5, {-2048, 2047, 1, -1}},
                   {1 << 20, 7, {5, -6, 7, -8}},
                   {1 << 21, 3, {0, -1, 0, 0}},
                   {(1 << 21) + kMaxRowSpan, 1, {2047, 2047, 2047, 2047}},
                   {(1 << 21) + 9, 0, {1, 1, 1, 1}},
                   {40000000, 2, {0, 0, 0, -2048}},
                   {40000001, 3, {3, 3, 3, 3}},
                   {40000002, 4, {-4, -4, -4, -4}}};
  const auto padded = [](std::string bytes) {
    bytes.resize((bytes.size() + 63) / 64 * 64);
    return bytes;
  };
  const std::string golden = ReadBytes(HEADRACE_GOLDEN "/version1.entries");
  const uint64_t tables_offset = 640 + padded(EncodeEntries(frame, points, 0)).size();
  EXPECT_EQ(padded(EncodeEntries(frame, points, tables_offset)) + padded(EncodeTables(frame)), golden);

  const auto view = EntryView::Parse(AsBytes(golden), 60000000);
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->tables_offset(), tables_offset);
  EntryPoint point;
  for (int i = 0; i < 9; ++i) {
    ASSERT_TRUE(view->Point(i / 3, i % 3, &point));
    EXPECT_EQ(point.byte, points.points[static_cast<size_t>(i)].byte);
    EXPECT_EQ(point.bit, points.points[static_cast<size_t>(i)].bit);
    EXPECT_EQ(point.dc, points.points[static_cast<size_t>(i)].dc);
  }
  JpegFrame read = view->frame();
  ASSERT_TRUE(ApplyTables(AsBytes(golden).subspan(tables_offset - 640), &read).ok());
  EXPECT_EQ(EncodeTables(read), EncodeTables(frame));
  EXPECT_EQ(read.color, JpegColor::kYcck);
}

}  // namespace
}  // namespace headrace
