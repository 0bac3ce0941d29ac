#include "core/shard/dataset.h"

#include <fcntl.h>

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/shard/format.h"
#include "core/shard/held_index.h"
#include "core/shard/index_file.h"
#include "core/shard/manifest.h"
#include "core/shard/table_cache.h"

namespace headrace {
namespace {

bool SameSchema(const std::vector<Field>& a, const std::vector<Field>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Field& x, const Field& y) {
    return x.name == y.name && x.kind == y.kind;
  });
}

// A part of a shard's index file where it is held in memory; else none.
absl::Span<const uint8_t> HeldBytes(const HeldIndex* held, uint32_t shard, uint64_t offset, uint64_t bytes) {
  const absl::Span<const uint8_t> index = held != nullptr ? held->Find(shard) : absl::Span<const uint8_t>();
  return offset <= index.size() && bytes <= index.size() - offset ? index.subspan(offset, bytes) : absl::Span<const uint8_t>();
}

void PrefetchBytes(absl::Span<const uint8_t> bytes) {
  constexpr size_t kLine = 64;
  for (size_t i = 0; i < bytes.size(); i += kLine) __builtin_prefetch(bytes.data() + i);
}

}  // namespace

const char* FormatName(ImageFormat format) {
  switch (format) {
    case ImageFormat::kJpeg: return "JPEG";
    case ImageFormat::kPng: return "PNG";
    case ImageFormat::kWebp: return "WebP";
    case ImageFormat::kGif: return "GIF";
    case ImageFormat::kBmp: return "BMP";
    case ImageFormat::kTiff: return "TIFF";
    case ImageFormat::kAvif: return "AVIF";
    default: return "unknown";
  }
}

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
    for (size_t i = 0; i < manifest.fields.size(); ++i) {
      if (manifest.fields[i].kind == FieldKind::kImage) dataset->image_field_ = static_cast<int>(i);
    }
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
    absl::StatusOr<UniqueFd> index = OpenForReading(index_path);
    if (absl::IsNotFound(index.status())) {
      return absl::DataLossError(absl::StrCat(index_path, " is missing; `headrace index ", dir, "` makes it anew"));
    }
    HEADRACE_ASSIGN_OR_RETURN(shard.index, std::move(index));
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
    shard.entries_offset = header.entries_offset();
    shard.entries_bytes = header.entries_bytes;
    return shard;
  }
};

Dataset::Dataset() : tables_(std::make_unique<TableCache>()) {}
Dataset::~Dataset() = default;

absl::StatusOr<std::shared_ptr<const Dataset>> Dataset::Open(const std::string& dir) {
  return DatasetOpener::Open(dir);
}

int Dataset::FindField(const std::string& name) const {
  for (size_t i = 0; i < fields_.size(); ++i) {
    if (fields_[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

absl::Status Dataset::ReadRow(uint64_t sample, SampleRow* row, const HeldIndex* held) const {
  if (sample >= size_) {
    return absl::OutOfRangeError(absl::StrCat("no sample ", sample, " in ", dir_, ", which has ", size_));
  }
  const auto [number, within] = Locate(sample);
  const Shard& shard = shards_[number];
  const uint8_t* bytes = HeldRow(number, within, held).data();
  uint8_t read[kMaxRowBytes];
  absl::Status status;
  if (bytes == nullptr) {
    // The message is only built for a failure: this runs once per sample served.
    status = ReadAt(shard.index.get(), read, layout_.row_bytes, shard.rows_offset + within * layout_.row_bytes, std::string());
    bytes = read;
  }
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

absl::StatusOr<bool> Dataset::ReadEntries(const SampleRow& row, ImageEntries* entries, const HeldIndex* held) const {
  if (row.entries_bytes == 0 || image_field_ < 0) return false;
  const uint32_t number = row.values[static_cast<size_t>(image_field_)].location.shard;
  const absl::Status status = TryReadEntries(shards_[number], number, row, held, entries);
  if (status.ok()) return true;
  return absl::DataLossError(absl::StrCat("shard ", number, ", sample ", row.sample, ": ", status.message(), " (",
                                          ShardIndexPath(dir_, number), ")"));
}

absl::Status Dataset::TryReadEntries(const Shard& shard, uint32_t number, const SampleRow& row, const HeldIndex* held,
                                     ImageEntries* entries) const {
  const uint64_t offset = shard.entries_offset + row.entries_offset;
  absl::Span<const uint8_t> bytes = HeldBytes(held, number, offset, row.entries_bytes);
  const bool is_held = !bytes.empty(), is_checked = is_held && held->verified()->Contains(row.sample);
  if (!is_held) {
    entries->bytes_.resize(row.entries_bytes);
    HEADRACE_RETURN_IF_ERROR(ReadAt(shard.index.get(), entries->bytes_.data(), row.entries_bytes, offset, std::string()));
    bytes = entries->bytes_;
  }
  const uint64_t image_bytes = row.values[static_cast<size_t>(image_field_)].location.length;
  HEADRACE_ASSIGN_OR_RETURN(entries->view_, EntryView::Parse(bytes, image_bytes, is_checked ? Sum::kTrusted : Sum::kChecked));
  if (is_held && !is_checked) held->verified()->Insert(row.sample);
  JpegFrame& frame = entries->frame_;
  static_cast<JpegShape&>(frame) = entries->view_.frame();
  // A decoder plans with the row's numbers.
  if (frame.width != row.image.width || frame.height != row.image.height ||
      frame.num_components != row.image.components) {
    return absl::DataLossError("entry data of another image");
  }
  const uint64_t tables_offset = entries->view_.tables_offset();
  entries->tables_number_ = uint64_t{number} << 44 ^ tables_offset;
  if (tables_offset > row.entries_offset && tables_offset - row.entries_offset < row.entries_bytes) {
    HEADRACE_RETURN_IF_ERROR(ParseTables(bytes.subspan(tables_offset - row.entries_offset), &frame));
  } else {
    HEADRACE_RETURN_IF_ERROR(ReadSharedTables(number, tables_offset, held, &frame));
  }
  return CheckTables(frame, frame);
}

// A table set that lies with an earlier image.
absl::Status Dataset::ReadSharedTables(uint32_t number, uint64_t tables_offset, const HeldIndex* held, JpegFrame* frame) const {
  if (tables_->Find(number, tables_offset, frame)) return absl::OkStatus();
  const Shard& shard = shards_[number];
  const uint64_t room = shard.entries_bytes - std::min(shard.entries_bytes, tables_offset);
  const uint64_t set_bytes = std::min<uint64_t>(room, kMaxTablesBytes);
  absl::Span<const uint8_t> set = HeldBytes(held, number, shard.entries_offset + tables_offset, set_bytes);
  std::array<uint8_t, kMaxTablesBytes> read;
  if (set.empty()) {
    HEADRACE_RETURN_IF_ERROR(
        ReadAt(shard.index.get(), read.data(), set_bytes, shard.entries_offset + tables_offset, std::string()));
    set = {read.data(), set_bytes};
  }
  HEADRACE_RETURN_IF_ERROR(ParseTables(set, frame));
  tables_->Insert(number, tables_offset, *frame);
  return absl::OkStatus();
}

void Dataset::PrefetchEntries(const SampleRow& row) const {
  if (row.entries_bytes == 0 || image_field_ < 0) return;
  const Shard& shard = shards_[row.values[static_cast<size_t>(image_field_)].location.shard];
  ::posix_fadvise(shard.index.get(), static_cast<off_t>(shard.entries_offset + row.entries_offset),
                  static_cast<off_t>(row.entries_bytes), POSIX_FADV_WILLNEED);
}

absl::Span<const uint8_t> Dataset::HeldRow(uint32_t number, uint64_t within, const HeldIndex* held) const {
  return HeldBytes(held, number, shards_[number].rows_offset + within * layout_.row_bytes, layout_.row_bytes);
}

void Dataset::PrefetchRow(uint64_t sample, const HeldIndex& held) const {
  const auto [number, within] = Locate(sample);
  PrefetchBytes(HeldRow(number, within, &held));
}

void Dataset::PrefetchEntries(uint64_t sample, const HeldIndex& held) const {
  const auto [number, within] = Locate(sample);
  const absl::Span<const uint8_t> row = HeldRow(number, within, &held);
  if (row.empty()) return;
  const auto [offset, bytes] = EntriesPlace(row.data());  // unchecked
  const Shard& shard = shards_[number];
  if (offset > shard.entries_bytes) return;
  constexpr uint64_t kPrefetched = 6144;  // photos have 3 kB
  PrefetchBytes(HeldBytes(&held, number, shard.entries_offset + offset, std::min({bytes, kPrefetched, shard.entries_bytes - offset})));
}

uint64_t Dataset::all_shard_bytes() const {
  return std::accumulate(shards_.begin(), shards_.end(), uint64_t{0}, [](uint64_t sum, const Shard& shard) { return sum + shard.lmdb_bytes; });
}

uint64_t Dataset::all_index_bytes() const {
  return std::accumulate(shards_.begin(), shards_.end(), uint64_t{0}, [](uint64_t sum, const Shard& shard) { return sum + shard.index_bytes; });
}

std::string Dataset::shard_path(uint32_t shard) const { return ShardLmdbPath(dir_, shard); }

std::pair<uint32_t, uint64_t> Dataset::Locate(uint64_t sample) const {
  const auto after = std::upper_bound(shards_.begin(), shards_.end(), sample,
                                      [](uint64_t n, const Shard& shard) { return n < shard.first_sample; });
  const auto number = static_cast<uint32_t>(after - shards_.begin()) - 1;
  return {number, sample - shards_[number].first_sample};
}

}  // namespace headrace
