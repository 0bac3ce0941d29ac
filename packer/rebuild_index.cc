#include "packer/rebuild_index.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/decode/image_decoder.h"
#include "core/decode/probe.h"
#include "core/shard/checksum.h"
#include "core/shard/index_file.h"
#include "core/shard/lmdb/shard_scanner.h"
#include "core/shard/manifest.h"
#include "packer/entry_maker.h"
#include "packer/ordered_blocks.h"

namespace headrace {
namespace {

// Of one shard.
class Rebuilder {
 public:
  Rebuilder(const Manifest& manifest, const std::string& dir, uint32_t shard, int entry_interval,
            std::mutex* large, RebuildProgress* progress)
      : manifest_(manifest), path_(ShardLmdbPath(dir, shard)), progress_(progress), rows_(manifest.fields),
        entry_maker_({entry_interval, manifest.packed.check}, large) {
    header_.shard = shard;
    for (uint32_t i = 0; i < shard; ++i) header_.first_sample += manifest.shards[i].samples;
    header_.lmdb_bytes = manifest.shards[shard].lmdb_bytes;
    header_.lmdb_checksum = manifest.shards[shard].lmdb_checksum;
    header_.fields = manifest.fields;
    header_.entry_interval = static_cast<uint32_t>(entry_interval);
    index_path_ = ShardIndexPath(dir, shard);
  }

  absl::Status Run() {
    HEADRACE_ASSIGN_OR_RETURN(Checksum128 checksum, ChecksumFile(path_));
    if (checksum != header_.lmdb_checksum) {
      return absl::DataLossError(absl::StrCat(path_, " does not match its checksum in ", kManifestName));
    }
    HEADRACE_ASSIGN_OR_RETURN(scanner_, ShardScanner::Open(path_, manifest_.fields));
    HEADRACE_ASSIGN_OR_RETURN(entries_, EntryArea::Create(index_path_));
    row_.values.resize(manifest_.fields.size());
    const uint64_t end = header_.first_sample + manifest_.shards[header_.shard].samples;
    for (row_.sample = header_.first_sample; row_.sample < end; ++row_.sample) {
      if (progress_->stop) return absl::CancelledError("stopped");
      HEADRACE_ASSIGN_OR_RETURN(bool more, scanner_->Next());
      if (!more || scanner_->sample() != row_.sample) {
        return absl::DataLossError(absl::StrCat(path_, " has no sample ", row_.sample, " in its place"));
      }
      HEADRACE_RETURN_IF_ERROR(Annotate(FillRow(scanner_->values()), absl::StrCat(path_, ", sample ", row_.sample)));
      rows_.Append(row_);
      ++progress_->samples;
    }
    return WriteIndexFile(index_path_, header_, rows_, entries_.get());
  }

 private:
  absl::Status FillRow(const std::vector<ScannedValue>& scanned) {
    row_.entries_offset = row_.entries_bytes = 0;
    for (size_t i = 0; i < scanned.size(); ++i) {
      const Field& field = manifest_.fields[i];
      SampleRow::Value& value = row_.values[i];
      value.location.offset = scanned[i].offset;
      value.location.length = scanned[i].length;
      if (!HasLocation(field.kind)) {
        if (scanned[i].length != sizeof value.i64) return absl::DataLossError("a number of another length than 8 bytes");
        HEADRACE_RETURN_IF_ERROR(scanner_->Read(scanned[i], &value.i64));
        std::memcpy(&value.f64, &value.i64, sizeof value.f64);
        continue;
      }
      if (scanned[i].length > std::min(field.max_bytes, kMaxValueBytes)) {
        return absl::DataLossError(absl::StrCat("field `", field.name, "` is longer than the dataset's longest"));
      }
      buffer_.resize(scanned[i].length);
      HEADRACE_RETURN_IF_ERROR(scanner_->Read(scanned[i], buffer_.data()));
      value.location.xxh3 = XXH3_64bits(buffer_.data(), buffer_.size());
      if (field.kind != FieldKind::kImage) continue;
      HEADRACE_RETURN_IF_ERROR(DescribeImage());
      progress_->bytes += buffer_.size();
    }
    return absl::OkStatus();
  }

  absl::Status DescribeImage() {
    HEADRACE_ASSIGN_OR_RETURN(row_.image, ProbeImage(buffer_));
    std::string tables, entries;
    const absl::Status made = entry_maker_.Make(buffer_, row_.image, &tables, &entries);
    if (!made.ok()) {
      std::lock_guard lock(progress_->mutex);
      progress_->warnings.push_back(
          absl::StrCat(path_, ", sample ", row_.sample, ": ", made.message()));
    }
    if (!entries.empty()) HEADRACE_RETURN_IF_ERROR(entries_->Append(tables, &entries, &row_));
    if (!manifest_.packed.check) return absl::OkStatus();
    const Rect all{0, 0, static_cast<int>(row_.image.height), static_cast<int>(row_.image.width)};
    std::string warning;
    HEADRACE_RETURN_IF_ERROR(decoder_.Decode(buffer_, row_.image, all, &pixels_, &warning));
    row_.image.damaged = !warning.empty();
    return absl::OkStatus();
  }

  const Manifest& manifest_;
  const std::string path_;
  std::string index_path_;
  RebuildProgress* const progress_;
  IndexHeader header_;
  IndexRows rows_;
  SampleRow row_;
  EntryMaker entry_maker_;
  std::unique_ptr<EntryArea> entries_;
  std::unique_ptr<ShardScanner> scanner_;
  std::vector<uint8_t> buffer_;
  ImageDecoder decoder_;
  RgbImage pixels_;
};

}  // namespace

absl::Status RebuildIndex(const std::string& dataset, int threads, int entry_interval, RebuildProgress* progress) {
  HEADRACE_ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(dataset));
  if (entry_interval < 0) entry_interval = manifest.packed.entry_interval;
  if (entry_interval < 0 || entry_interval > kMaxEntryInterval) {
    return absl::InvalidArgumentError(absl::StrCat("an entry interval is 0 to ", kMaxEntryInterval, " MCUs"));
  }
  progress->samples_total = manifest.samples();
  absl::Status first_error;
  std::mutex large;
  OrderedBlocks<absl::Status>(
      manifest.shards.size(), 1, threads > 0 ? threads : UsableCores(), progress->stop,
      [&](uint64_t shard, uint64_t, int) {
        return Rebuilder(manifest, dataset, static_cast<uint32_t>(shard), entry_interval, &large, progress).Run();
      },
      [&](absl::Status&& status) { first_error.Update(status); });
  if (first_error.ok() && progress->stop) return absl::CancelledError("stopped");
  return first_error;
}

}  // namespace headrace
