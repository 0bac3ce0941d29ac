// DST/pack.journal: what a packer that was killed had finished.
//
// Text, one JSON object a line, each followed by a space and the XXH3-64 of the object as 16 hex digits. The first line says
// what is packed and how; each further line is a shard that lies complete on the disk. A line that was cut off or does not
// match its hash ends the journal.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/shard/manifest.h"

namespace headrace {


// Where packing stands behind a finished shard.
struct JournalEntry {
  ShardEntry shard;
  uint64_t items = 0;        // of the source, up to and with the shard's last sample
  uint64_t items_hash = 0;   // of their names, sizes and times
  uint64_t report_bytes = 0;
  uint64_t rejected = 0, skipped = 0;
};

// Keeps a lock on the file, so that two packers never write one dataset. Not thread-safe.
class Journal {
 public:
  // Opens or makes the journal in `dir`. FAILED_PRECONDITION when another packer works there.
  static absl::StatusOr<std::unique_ptr<Journal>> Open(const std::string& dir);

  // The first line, or "" in a new journal.
  const std::string& header() const { return header_; }
  const std::vector<JournalEntry>& entries() const { return entries_; }

  // Leaves nothing but this first line. A kill leaves it or the one that was there.
  absl::Status Begin(const std::string& header_json);
  // Forgets the entries behind the first `n`.
  absl::Status KeepEntries(size_t n);
  // Adds a line, on the disk when it returns.
  absl::Status Append(const JournalEntry& entry);
  // Removes the file.
  absl::Status Remove();

 private:
  absl::Status Load();
  absl::Status AppendLine(const std::string& json);
  absl::Status CutTo(uint64_t bytes);

  std::string path_, header_;
  UniqueFd fd_;
  std::vector<JournalEntry> entries_;
  std::vector<uint64_t> line_ends_;  // of the header and each entry
};

}  // namespace headrace
