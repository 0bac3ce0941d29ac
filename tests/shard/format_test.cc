#include "core/shard/format.h"

#include <gmock/gmock.h>
#include <xxhash.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>

#include "tests/shard/small_shards.h"

namespace headrace {
namespace {

using ::headrace::testing::AsBytes;
using ::testing::HasSubstr;

constexpr uint64_t kLmdbBytes = uint64_t{1} << 20;

std::vector<Field> GoldenFields() {
  const uint64_t any = UINT64_MAX;
  return {{"image", FieldKind::kImage, any},
          {"label", FieldKind::kInt64, 0},
          {"name", FieldKind::kText, any},
          {"weight", FieldKind::kFloat64, 0},
          {"Größe", FieldKind::kInt64, 0}};
}

IndexHeader GoldenHeader() {
  IndexHeader header;
  header.shard = 3;
  header.first_sample = 70;
  header.num_samples = 2;
  header.lmdb_bytes = kLmdbBytes;
  for (uint8_t i = 0; i < 16; ++i) header.lmdb_checksum[i] = i;
  header.entries_checksum = XXH3_64bits(nullptr, 0);
  header.fields = GoldenFields();
  return header;
}

std::vector<SampleRow> GoldenRows() {
  std::vector<SampleRow> rows(2);
  rows[0].sample = 70;
  rows[0].image = {ImageFormat::kJpeg, 640, 480, 6, 3, {0x22, 0x11, 0x11, 0}, false, false};
  rows[0].values.resize(5);
  rows[0].values[0].location = {0, 4112, 100000, 0x0123456789ABCDEF};
  rows[0].values[1].i64 = -1;
  rows[0].values[2].location = {0, 200000, 9, 0xFEDCBA9876543210};
  rows[0].values[3].f64 = 0.5;
  rows[0].values[4].i64 = int64_t{1} << 40;
  rows[1].sample = 71;
  rows[1].image = {ImageFormat::kPng, 1, 65500, 1, 4, {0, 0, 0, 0}, true, true};
  rows[1].values.resize(5);
  rows[1].values[0].location = {0, 1048570, 6, 1};
  rows[1].values[1].i64 = int64_t{1} << 62;
  rows[1].values[2].location = {0, 0, 0, 2};
  rows[1].values[3].f64 = -1e300;
  return rows;
}

std::string EncodedRow(const RowLayout& layout, const SampleRow& row) {
  std::string out(layout.row_bytes, '\xEE');
  EncodeRow(layout, row, reinterpret_cast<uint8_t*>(out.data()));
  return out;
}

std::string GoldenFile() {
  std::stringstream content;
  content << std::ifstream(HEADRACE_GOLDEN "/version1.index", std::ios::binary).rdbuf();
  return content.str();
}

const uint8_t* Bytes(const std::string& text) { return reinterpret_cast<const uint8_t*>(text.data()); }

void ExpectSameRow(const SampleRow& a, const SampleRow& b) {
  EXPECT_EQ(a.sample, b.sample);
  EXPECT_EQ(a.image.format, b.image.format);
  EXPECT_EQ(a.image.width, b.image.width);
  EXPECT_EQ(a.image.height, b.image.height);
  EXPECT_EQ(a.image.orientation, b.image.orientation);
  EXPECT_EQ(a.image.components, b.image.components);
  EXPECT_EQ(a.image.progressive, b.image.progressive);
  EXPECT_EQ(a.image.damaged, b.image.damaged);
  EXPECT_EQ(std::memcmp(a.image.sampling, b.image.sampling, 4), 0);
  EXPECT_EQ(a.entries_offset, b.entries_offset);
  EXPECT_EQ(a.entries_bytes, b.entries_bytes);
  ASSERT_EQ(a.values.size(), b.values.size());
  for (size_t i = 0; i < a.values.size(); ++i) {
    EXPECT_EQ(a.values[i].location.offset, b.values[i].location.offset) << i;
    EXPECT_EQ(a.values[i].location.length, b.values[i].location.length) << i;
    EXPECT_EQ(a.values[i].location.xxh3, b.values[i].location.xxh3) << i;
    EXPECT_EQ(a.values[i].i64, b.values[i].i64) << i;
    EXPECT_EQ(a.values[i].f64, b.values[i].f64) << i;
  }
}

TEST(IndexFormat, IsByteForByteThatOfTheGoldenFile) {
  const IndexHeader header = GoldenHeader();
  const RowLayout layout = MakeRowLayout(header.fields);
  std::string file = EncodeIndexHeader(header);
  for (const SampleRow& row : GoldenRows()) file += EncodedRow(layout, row);
  EXPECT_EQ(file, GoldenFile());
}

TEST(IndexFormat, TheGoldenFileIsReadAsItWasMeant) {
  const std::string file = GoldenFile();
  const auto preamble = IndexPreambleBytes(AsBytes(file));
  ASSERT_TRUE(preamble.ok()) << preamble.status();
  const auto header = DecodeIndexHeader(AsBytes(file).subspan(0, *preamble), file.size());
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->shard, 3u);
  EXPECT_EQ(header->first_sample, 70u);
  EXPECT_EQ(header->num_samples, 2u);
  EXPECT_EQ(header->lmdb_bytes, kLmdbBytes);
  EXPECT_EQ(ToHex(header->lmdb_checksum), "000102030405060708090a0b0c0d0e0f");
  ASSERT_EQ(header->fields.size(), 5u);
  EXPECT_EQ(header->fields[4].name, "Größe");
  const RowLayout layout = MakeRowLayout(header->fields);
  const std::vector<Field> fields = GoldenFields();
  const std::vector<SampleRow> expected = GoldenRows();
  for (size_t i = 0; i < 2; ++i) {
    SampleRow row;
    const absl::Status status = DecodeRow(layout, {kLmdbBytes, 0, &fields}, 70 + i,
                                          Bytes(file) + header->rows_offset() + i * layout.row_bytes, &row);
    ASSERT_TRUE(status.ok()) << status;
    ExpectSameRow(row, expected[i]);
  }
}

TEST(IndexFormat, EachFlippedBitOfARowIsFound) {
  const std::vector<Field> fields = GoldenFields();
  const RowLayout layout = MakeRowLayout(fields);
  std::string row = EncodedRow(layout, GoldenRows()[0]);
  SampleRow decoded;
  for (size_t bit = 0; bit < 8 * row.size(); ++bit) {
    row[bit / 8] = static_cast<char>(row[bit / 8] ^ 1 << bit % 8);
    EXPECT_TRUE(absl::IsDataLoss(DecodeRow(layout, {kLmdbBytes, 0, &fields}, 70, Bytes(row), &decoded))) << bit;
    row[bit / 8] = static_cast<char>(row[bit / 8] ^ 1 << bit % 8);
  }
  EXPECT_TRUE(DecodeRow(layout, {kLmdbBytes, 0, &fields}, 70, Bytes(row), &decoded).ok());
}

TEST(IndexFormat, ARowInAnotherSamplesPlaceIsRefused) {
  const std::vector<Field> fields = GoldenFields();
  const RowLayout layout = MakeRowLayout(fields);
  const std::string row = EncodedRow(layout, GoldenRows()[0]);
  SampleRow decoded;
  EXPECT_TRUE(absl::IsDataLoss(DecodeRow(layout, {kLmdbBytes, 0, &fields}, 71, Bytes(row), &decoded)));
}

// Rows whose checksum is right, as somebody hostile would make them.
TEST(IndexFormat, HostileRowsAreRefused) {
  const std::vector<std::pair<std::string, std::function<void(SampleRow*)>>> attacks = {
      {"offset behind the file", [](SampleRow* r) { r->values[0].location.offset = kLmdbBytes + 1; }},
      {"end behind the file", [](SampleRow* r) { r->values[0].location.length = kLmdbBytes - 4111; }},
      {"sum that wraps", [](SampleRow* r) { r->values[0].location.offset = UINT64_MAX - 8; }},
      {"length that wraps", [](SampleRow* r) { r->values[0].location.length = UINT64_MAX; }},
      {"text behind the file", [](SampleRow* r) { r->values[2].location.offset = kLmdbBytes - 8; }},
      {"longer than the longest", [](SampleRow* r) { r->values[0].location.length = 100001; }},
      {"entries outside", [](SampleRow* r) { r->entries_offset = 1; }},
      {"entries that wrap", [](SampleRow* r) { r->entries_bytes = UINT64_MAX; }},
      {"no width", [](SampleRow* r) { r->image.width = 0; }},
      {"no height", [](SampleRow* r) { r->image.height = 0; }},
      {"too many pixels", [](SampleRow* r) { r->image.width = r->image.height = 65536; }},
      {"no format", [](SampleRow* r) { r->image.format = ImageFormat::kUnknown; }},
      {"unknown format", [](SampleRow* r) { r->image.format = static_cast<ImageFormat>(8); }},
      {"orientation 0", [](SampleRow* r) { r->image.orientation = 0; }},
      {"orientation 9", [](SampleRow* r) { r->image.orientation = 9; }},
      {"no components", [](SampleRow* r) { r->image.components = 0; }},
      {"five components", [](SampleRow* r) { r->image.components = 5; }},
  };
  std::vector<Field> fields = GoldenFields();
  fields[0].max_bytes = 100000;
  const RowLayout layout = MakeRowLayout(fields);
  SampleRow decoded;
  for (const auto& [what, attack] : attacks) {
    SampleRow row = GoldenRows()[0];
    const auto decode = [&] {
      const std::string bytes = EncodedRow(layout, row);
      return DecodeRow(layout, {kLmdbBytes, 0, &fields}, 70, Bytes(bytes), &decoded);
    };
    ASSERT_TRUE(decode().ok()) << what;
    attack(&row);
    EXPECT_TRUE(absl::IsDataLoss(decode())) << what;
  }
}

TEST(IndexFormat, RowsThatPromiseMoreThanAnyImageHasAreRefusedWhateverTheFilesHold) {
  std::vector<Field> fields = GoldenFields();
  for (Field& field : fields) field.max_bytes = UINT64_MAX;
  const RowLayout layout = MakeRowLayout(fields);
  const auto decode = [&](uint64_t image, uint64_t text, uint64_t entries) {
    SampleRow row = GoldenRows()[0], decoded;
    row.values[0].location.length = image;
    row.values[2].location.length = text;
    row.entries_bytes = entries;
    const std::string bytes = EncodedRow(layout, row);
    return DecodeRow(layout, {uint64_t{1} << 45, uint64_t{1} << 45, &fields}, 70, Bytes(bytes), &decoded);
  };
  EXPECT_TRUE(decode(kMaxValueBytes, kMaxValueBytes, kMaxEntryBytes).ok());
  EXPECT_TRUE(absl::IsDataLoss(decode(kMaxValueBytes + 1, 0, 0)));
  EXPECT_TRUE(absl::IsDataLoss(decode(1, kMaxValueBytes + 1, 0)));
  EXPECT_TRUE(absl::IsDataLoss(decode(1, 0, kMaxEntryBytes + 1)));
}

// Sets one number of a header and makes its checksum right again.
absl::Status DecodeChangedHeader(size_t at, size_t size, uint64_t value) {
  std::string file = GoldenFile();
  std::memcpy(file.data() + at, &value, size);
  const size_t preamble = 128 + 64 * 5;
  std::memset(file.data() + 120, 0, 8);
  const uint64_t checksum = XXH3_64bits(file.data(), preamble);
  std::memcpy(file.data() + 120, &checksum, 8);
  const auto bytes = IndexPreambleBytes(AsBytes(file));
  if (!bytes.ok()) return bytes.status();
  return DecodeIndexHeader(AsBytes(file).subspan(0, *bytes), file.size()).status();
}

TEST(IndexFormat, HostileHeadersAreRefused) {
  EXPECT_TRUE(DecodeChangedHeader(12, 4, 3).ok()) << "the unchanged header must be right";
  EXPECT_TRUE(absl::IsDataLoss(DecodeChangedHeader(0, 1, 'X')));
  EXPECT_THAT(DecodeChangedHeader(8, 4, 2).ToString(), HasSubstr("version 2"));
  for (uint64_t samples : {uint64_t{0}, uint64_t{1}, uint64_t{3}, UINT64_MAX / 192, UINT64_MAX}) {
    EXPECT_TRUE(absl::IsDataLoss(DecodeChangedHeader(24, 8, samples))) << samples;
  }
  EXPECT_TRUE(absl::IsDataLoss(DecodeChangedHeader(16, 8, UINT64_MAX))) << "sample numbers would wrap";
  for (uint64_t fields : {0u, 4u, 6u, 257u, 0xFFFFFFFFu}) {
    EXPECT_TRUE(absl::IsDataLoss(DecodeChangedHeader(32, 4, fields))) << fields;
  }
  EXPECT_TRUE(absl::IsDataLoss(DecodeChangedHeader(36, 4, 192)));
  EXPECT_TRUE(absl::IsDataLoss(DecodeChangedHeader(40, 8, 0)));
  EXPECT_TRUE(absl::IsDataLoss(DecodeChangedHeader(48, 8, 448)));
  for (uint64_t entries : {uint64_t{1}, UINT64_MAX, UINT64_MAX - 831}) {
    EXPECT_TRUE(absl::IsDataLoss(DecodeChangedHeader(56, 8, entries))) << entries;
  }
  EXPECT_TRUE(absl::IsDataLoss(DecodeChangedHeader(128, 4, 5))) << "unknown kind";
  EXPECT_TRUE(absl::IsDataLoss(DecodeChangedHeader(132, 4, 8))) << "field inside the row's head";
  EXPECT_TRUE(absl::IsDataLoss(DecodeChangedHeader(136, 1, 0))) << "field without a name";
  EXPECT_TRUE(absl::IsDataLoss(DecodeChangedHeader(128 + 64, 4, 1))) << "two images";
}

TEST(IndexFormat, EachFlippedBitOfAHeaderIsFound) {
  std::string file = GoldenFile();
  for (size_t bit = 0; bit < 8 * (128 + 64 * 5); ++bit) {
    file[bit / 8] = static_cast<char>(file[bit / 8] ^ 1 << bit % 8);
    const auto bytes = IndexPreambleBytes(AsBytes(file));
    EXPECT_FALSE(bytes.ok() && *bytes <= file.size() &&
                 DecodeIndexHeader(AsBytes(file).subspan(0, *bytes), file.size()).ok())
        << bit;
    file[bit / 8] = static_cast<char>(file[bit / 8] ^ 1 << bit % 8);
  }
}

TEST(IndexFormat, ACutOffHeaderIsRefused) {
  const std::string file = GoldenFile();
  for (size_t length = 0; length < 128; ++length) {
    EXPECT_TRUE(absl::IsDataLoss(IndexPreambleBytes(AsBytes(file).subspan(0, length)).status())) << length;
  }
  EXPECT_TRUE(absl::IsDataLoss(DecodeIndexHeader(AsBytes(file).subspan(0, 200), file.size()).status()));
  EXPECT_TRUE(absl::IsDataLoss(DecodeIndexHeader(AsBytes(file).subspan(0, 448), file.size() - 1).status()));
}

TEST(IndexFormat, FieldsThatItCannotExpressAreRefused) {
  EXPECT_FALSE(ValidateFields({}).ok());
  EXPECT_FALSE(ValidateFields({{"", FieldKind::kText, 0}}).ok());
  EXPECT_FALSE(ValidateFields({{std::string(56, 'x'), FieldKind::kText, 0}}).ok());
  EXPECT_TRUE(ValidateFields({{std::string(55, 'x'), FieldKind::kText, 0}}).ok());
  EXPECT_FALSE(ValidateFields({{std::string("a\0b", 3), FieldKind::kText, 0}}).ok());
  EXPECT_FALSE(ValidateFields({{"a", FieldKind::kText, 0}, {"a", FieldKind::kInt64, 0}}).ok());
  EXPECT_FALSE(ValidateFields({{"a", FieldKind::kImage, 0}, {"b", FieldKind::kImage, 0}}).ok());
}

TEST(Checksum, HexadecimalDigitsRoundTripAndOthersAreRefused) {
  const std::string hex = "00ff102030405060708090a0b0c0d0ef";
  ASSERT_TRUE(ChecksumFromHex(hex).ok());
  EXPECT_EQ(ToHex(*ChecksumFromHex(hex)), hex);
  for (const char* bad : {"", "00", "00FF102030405060708090a0b0c0d0ef", "g0ff102030405060708090a0b0c0d0ef",
                          "00ff102030405060708090a0b0c0d0ef0"}) {
    EXPECT_FALSE(ChecksumFromHex(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace headrace
