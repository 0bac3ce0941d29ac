#include "tests/read/small_dataset.h"

#include <xxhash.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/decode/probe.h"
#include "core/shard/checksum.h"
#include "core/shard/durable_file.h"
#include "core/shard/index_file.h"
#include "core/shard/lmdb/shard_writer.h"
#include "core/shard/manifest.h"

namespace headrace::testing {
namespace {

template <typename T>
absl::Span<const uint8_t> Bytes(const T* data, size_t count) {
  return {reinterpret_cast<const uint8_t*>(data), count * sizeof(T)};
}

void Describe(absl::Span<const uint8_t> bytes, uint64_t* field_bytes, Field* field,
              ValueLocation* location) {
  location->length = bytes.size();
  location->xxh3 = XXH3_64bits(bytes.data(), bytes.size());
  *field_bytes += bytes.size();
  field->max_bytes = std::max<uint64_t>(field->max_bytes, bytes.size());
}

absl::Status WriteShard(const std::string& dir, absl::Span<const SmallSample> samples,
                        uint64_t first_sample, Manifest* manifest) {
  IndexHeader header;
  header.shard = static_cast<uint32_t>(manifest->shards.size());
  header.first_sample = first_sample;
  header.num_samples = samples.size();
  header.fields = manifest->fields;
  const std::string path = ShardLmdbPath(dir, header.shard);
  HEADRACE_ASSIGN_OR_RETURN(const auto writer,
                            ShardWriter::Create(path, manifest->fields, uint64_t{1} << 24));
  IndexRows rows(manifest->fields);
  for (size_t i = 0; i < samples.size(); ++i) {
    const SmallSample& sample = samples[i];
    SampleRow row;
    row.sample = first_sample + i;
    HEADRACE_ASSIGN_OR_RETURN(row.image, ProbeImage(sample.image));
    row.values.resize(3);
    const absl::Span<const uint8_t> values[] = {sample.image, Bytes(&sample.label, 1),
                                                Bytes(sample.name.data(), sample.name.size())};
    for (const size_t field : {size_t{0}, size_t{2}}) {
      Describe(values[field], &manifest->field_bytes[field], &manifest->fields[field],
               &row.values[field].location);
    }
    row.values[1].i64 = sample.label;
    HEADRACE_RETURN_IF_ERROR(writer->Append(row.sample, values));
    rows.Append(row);
  }
  HEADRACE_RETURN_IF_ERROR(writer->Finish());
  HEADRACE_RETURN_IF_ERROR(rows.FillPlaces(path, manifest->fields));
  HEADRACE_ASSIGN_OR_RETURN(header.lmdb_checksum, ChecksumFile(path));
  HEADRACE_ASSIGN_OR_RETURN(const UniqueFd fd, OpenForReading(path));
  HEADRACE_ASSIGN_OR_RETURN(header.lmdb_bytes, FileSize(fd.get(), path));
  HEADRACE_RETURN_IF_ERROR(WriteIndexFile(ShardIndexPath(dir, header.shard), header, rows));
  manifest->shards.push_back({header.num_samples, header.lmdb_bytes, header.lmdb_checksum});
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteSmallDataset(const std::string& dir, const std::vector<SmallSample>& samples,
                               size_t samples_per_shard) {
  Manifest manifest;
  manifest.fields = {{"image", FieldKind::kImage, 0},
                     {"label", FieldKind::kInt64, 0},
                     {"name", FieldKind::kText, 0}};
  manifest.field_bytes.resize(manifest.fields.size());
  int64_t classes = 0;
  for (const SmallSample& sample : samples) classes = std::max(classes, sample.label + 1);
  for (int64_t label = 0; label < classes; ++label)
    manifest.classes.push_back(absl::StrCat("class", label));
  const absl::Span<const SmallSample> all(samples);
  for (size_t first = 0; first < all.size(); first += samples_per_shard) {
    HEADRACE_RETURN_IF_ERROR(
        WriteShard(dir, all.subspan(first, samples_per_shard), first, &manifest));
  }
  const std::string json = ManifestToJson(manifest);
  const std::string* const parts[] = {&json};
  return WriteFileDurably(absl::StrCat(dir, "/", kManifestName), parts);
}

}  // namespace headrace::testing
