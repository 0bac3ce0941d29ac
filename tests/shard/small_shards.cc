#include "tests/shard/small_shards.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <filesystem>
#include <random>

#include "core/shard/checksum.h"
#include "core/shard/durable_file.h"
#include "core/shard/index_file.h"
#include "core/shard/lmdb/shard_writer.h"

namespace headrace::testing {
namespace {

void Locate(const std::string& content, SampleRow::Value* value) {
  value->location.length = content.size();
  value->location.xxh3 = XXH3_64bits(content.data(), content.size());
}

}  // namespace

std::vector<Field> SmallFields() {
  return {{"image", FieldKind::kImage, 0},
          {"label", FieldKind::kInt64, 0},
          {"name", FieldKind::kText, 0},
          {"score", FieldKind::kFloat64, 0}};
}

std::string ImageOf(uint64_t sample) {
  static constexpr size_t kLengths[] = {1,    500,  1999, 2000,  2001,  2020,  2021,   2022,   2023,
                                        2024, 2025, 4080, 4081,  4096,  8176,  8177,   20000,  100000};
  std::mt19937_64 random(sample + 1);
  std::string bytes(kLengths[sample % std::size(kLengths)], '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

std::string NameOf(uint64_t sample) {
  return sample % 5 == 0 ? "" : "folder/" + std::to_string(sample) + std::string(sample % 300, 'x') + ".jpg";
}

ShardEntry WriteShard(const std::string& dir, uint32_t number, uint64_t first_sample, uint64_t samples) {
  const std::vector<Field> fields = SmallFields();
  const std::string path = ShardLmdbPath(dir, number);
  auto writer = ShardWriter::Create(path, fields, uint64_t{1} << 24);
  EXPECT_TRUE(writer.ok()) << writer.status();
  IndexRows rows(fields);
  for (uint64_t sample = first_sample; sample < first_sample + samples; ++sample) {
    const std::string image = ImageOf(sample), name = NameOf(sample);
    SampleRow row;
    row.sample = sample;
    row.image = {ImageFormat::kJpeg, 10 + static_cast<uint32_t>(sample), 20, 1, 3, {0x11, 0x11, 0x11, 0}, false, false};
    row.values.resize(fields.size());
    Locate(image, &row.values[0]);
    row.values[1].i64 = LabelOf(sample);
    Locate(name, &row.values[2]);
    row.values[3].f64 = ScoreOf(sample);
    const std::string label(reinterpret_cast<const char*>(&row.values[1].i64), 8);
    const std::string score(reinterpret_cast<const char*>(&row.values[3].f64), 8);
    const absl::Status status = (*writer)->Append(sample, {AsBytes(image), AsBytes(label), AsBytes(name), AsBytes(score)});
    EXPECT_TRUE(status.ok()) << status;
    rows.Append(row);
  }
  EXPECT_TRUE((*writer)->Finish().ok());
  const absl::Status filled = rows.FillPlaces(path, fields);
  EXPECT_TRUE(filled.ok()) << filled;
  IndexHeader header;
  header.shard = number;
  header.first_sample = first_sample;
  header.fields = fields;
  header.lmdb_bytes = std::filesystem::file_size(path);
  header.lmdb_checksum = *ChecksumFile(path);
  EXPECT_TRUE(WriteIndexFile(ShardIndexPath(dir, number), header, rows).ok());
  return {samples, header.lmdb_bytes, header.lmdb_checksum};
}

Manifest WriteDataset(const std::string& dir, uint64_t samples) {
  Manifest manifest;
  manifest.fields = SmallFields();
  manifest.fields[0].max_bytes = 100000;
  manifest.fields[2].max_bytes = 400;
  manifest.field_bytes.assign(4, 0);
  manifest.classes = {"cat", "dog"};
  for (uint32_t shard = 0; shard < 2; ++shard) {
    manifest.shards.push_back(WriteShard(dir, shard, shard * samples, samples));
  }
  const std::string json = ManifestToJson(manifest);
  EXPECT_TRUE(WriteFileDurably(dir + "/dataset.json", {&json}).ok());
  return manifest;
}

}  // namespace headrace::testing
