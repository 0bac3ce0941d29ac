#include "core/shard/dataset.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/shard/format.h"
#include "core/shard/index_file.h"
#include "core/shard/manifest.h"

namespace headrace {
namespace {

bool SameSchema(const std::vector<Field>& a, const std::vector<Field>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Field& x, const Field& y) {
    return x.name == y.name && x.kind == y.kind;
  });
}

}  // namespace

class DatasetOpener {
 public:
  static absl::StatusOr<std::shared_ptr<const Dataset>> Open(const std::string& dir) {
    HEADRACE_ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(dir));
    std::shared_ptr<Dataset> dataset(new Dataset());
    dataset->dir_ = dir;
    dataset->hash_ = ManifestHash(manifest);
    dataset->size_ = manifest.samples();
    dataset->fields_ = manifest.fields;
    dataset->classes_ = manifest.classes;
    dataset->layout_ = MakeRowLayout(manifest.fields);
    uint64_t first_sample = 0;
    for (uint32_t number = 0; number < manifest.shards.size(); ++number) {
      absl::StatusOr<Dataset::Shard> shard = OpenShard(manifest, number, first_sample, dir);
      if (absl::IsOutOfRange(shard.status()) || absl::IsNotFound(shard.status())) {
        return absl::DataLossError(std::string(shard.status().message()));  // cut off or missing: the same damage
      }
      HEADRACE_RETURN_IF_ERROR(shard.status());
      first_sample += shard->num_samples;
      dataset->shards_.push_back(*std::move(shard));
    }
    return std::shared_ptr<const Dataset>(std::move(dataset));
  }

 private:
  static absl::StatusOr<Dataset::Shard> OpenShard(const Manifest& manifest, uint32_t number, uint64_t first_sample,
                                                  const std::string& dir) {
    const ShardEntry& entry = manifest.shards[number];
    const std::string lmdb_path = ShardLmdbPath(dir, number), index_path = ShardIndexPath(dir, number);
    Dataset::Shard shard{};
    HEADRACE_ASSIGN_OR_RETURN(shard.lmdb, OpenForReading(lmdb_path));
    HEADRACE_ASSIGN_OR_RETURN(shard.lmdb_bytes, FileSize(shard.lmdb.get(), lmdb_path));
    if (shard.lmdb_bytes != entry.lmdb_bytes) {
      return absl::DataLossError(absl::StrCat(lmdb_path, " has ", shard.lmdb_bytes, " bytes; ", kManifestName,
                                              " says ", entry.lmdb_bytes));
    }
    HEADRACE_ASSIGN_OR_RETURN(shard.index, OpenForReading(index_path));
    HEADRACE_ASSIGN_OR_RETURN(shard.index_bytes, FileSize(shard.index.get(), index_path));
    HEADRACE_ASSIGN_OR_RETURN(IndexHeader header,
                              ReadIndexHeader(shard.index.get(), shard.index_bytes, index_path));
    if (header.shard != number || header.first_sample != first_sample || header.num_samples != entry.samples ||
        header.lmdb_bytes != entry.lmdb_bytes || header.lmdb_checksum != entry.lmdb_checksum ||
        !SameSchema(header.fields, manifest.fields)) {
      return absl::DataLossError(absl::StrCat(index_path, " belongs to another shard than ", kManifestName,
                                              " describes; `headrace index ", dir, "` makes it anew"));
    }
    shard.first_sample = first_sample;
    shard.num_samples = header.num_samples;
    shard.rows_offset = header.rows_offset();
    shard.entries_bytes = header.entries_bytes;
    return shard;
  }
};

absl::StatusOr<std::shared_ptr<const Dataset>> Dataset::Open(const std::string& dir) {
  return DatasetOpener::Open(dir);
}

int Dataset::FindField(const std::string& name) const {
  for (size_t i = 0; i < fields_.size(); ++i) {
    if (fields_[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

absl::Status Dataset::ReadRow(uint64_t sample, SampleRow* row) const {
  if (sample >= size_) {
    return absl::OutOfRangeError(absl::StrCat("no sample ", sample, " in ", dir_, ", which has ", size_));
  }
  const auto [number, within] = Locate(sample);
  const Shard& shard = shards_[number];
  uint8_t bytes[kMaxRowBytes];
  // The message is only built for a failure: this runs once per sample served.
  absl::Status status = ReadAt(shard.index.get(), bytes, layout_.row_bytes,
                               shard.rows_offset + within * layout_.row_bytes, std::string());
  if (status.ok()) {
    status = DecodeRow(layout_, {shard.lmdb_bytes, shard.entries_bytes, &fields_}, sample, bytes, row);
  }
  if (!status.ok()) {
    return absl::DataLossError(absl::StrCat("shard ", number, ", sample ", sample, ": ", status.message(), " (",
                                            ShardIndexPath(dir_, number), ")"));
  }
  for (SampleRow::Value& value : row->values) value.location.shard = number;
  return absl::OkStatus();
}

std::string Dataset::shard_path(uint32_t shard) const { return ShardLmdbPath(dir_, shard); }

std::pair<uint32_t, uint64_t> Dataset::Locate(uint64_t sample) const {
  const auto after = std::upper_bound(shards_.begin(), shards_.end(), sample,
                                      [](uint64_t n, const Shard& shard) { return n < shard.first_sample; });
  const auto number = static_cast<uint32_t>(after - shards_.begin()) - 1;
  return {number, sample - shards_[number].first_sample};
}

}  // namespace headrace
