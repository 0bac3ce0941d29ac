// Index files as a whole (docs/shard_format.md). For single rows while serving: Dataset.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/shard/entry_area.h"
#include "core/shard/format.h"

namespace headrace {

// The rows of one shard while it is written: encoded, the places of values still open. row_bytes per sample in memory.
class IndexRows {
 public:
  explicit IndexRows(const std::vector<Field>& fields) : layout_(MakeRowLayout(fields)) {}

  // Offsets in row.values are ignored; lengths and hashes count.
  void Append(const SampleRow& row);
  uint64_t size() const { return rows_.size() / layout_.row_bytes; }

  // Looks up where each value lies in the finished file `lmdb_path`. DATA_LOSS when that holds other samples or values
  // of other lengths than the rows.
  absl::Status FillPlaces(const std::string& lmdb_path, const std::vector<Field>& fields);

  const std::string& encoded() const { return rows_; }

 private:
  RowLayout layout_;
  std::string rows_;
};

// Of an open index of `index_bytes` bytes. DATA_LOSS, OUT_OF_RANGE with `path` in the message.
absl::StatusOr<IndexHeader> ReadIndexHeader(int fd, uint64_t index_bytes, const std::string& path);

// Whether the entry data matches its checksum: reads it all. DATA_LOSS.
absl::Status CheckEntryArea(const std::string& path, const IndexHeader& header);

// Calls `visit` for each row, in order, with what DecodeRow says of it (the row is only valid if that is OK). `fields`:
// those of the header with the dataset's max_bytes. Reads in large blocks.
absl::Status VisitIndexRows(const std::string& path, const IndexHeader& header, const std::vector<Field>& fields,
                            const std::function<void(const absl::Status&, const SampleRow&)>& visit);

// Writes an index durably, replacing what was there. `entries` may be null; the header's num_samples, entries_bytes and
// entries_checksum are filled in here.
absl::Status WriteIndexFile(const std::string& path, const IndexHeader& header, const IndexRows& rows,
                            EntryArea* entries = nullptr);

}  // namespace headrace
