// The entry data of one shard while its index is made (docs/shard_format.md, "Entry data").
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "core/base/unique_fd.h"
#include "core/shard/dataset.h"

namespace headrace {

// Lies in a file without a name until WriteIndexFile copies it: the index has its rows in front of it, and their number is
// not known before. Memory: 256 KiB, and 64 bytes per table set. Not thread-safe.
class EntryArea {
 public:
  // Makes the file beside `index_path` and removes its name at once, so that a kill leaves nothing.
  static absl::StatusOr<std::unique_ptr<EntryArea>> Create(const std::string& index_path);
  ~EntryArea();

  // Adds an image's entry data (EncodeEntries; its tables_offset is filled in here) and behind it its table set
  // (EncodeTables), unless an equal one is there. `row` receives the place of what was added. RESOURCE_EXHAUSTED when the disk
  // is full.
  absl::Status Append(const std::string& tables, std::string* entries, SampleRow* row);

  // Brings everything into the file.
  absl::Status Flush();
  int fd() const { return fd_.get(); }
  uint64_t size() const { return size_; }  // bytes appended
  uint64_t checksum() const;               // XXH3-64 of them

 private:
  struct Hash;
  EntryArea();
  absl::Status Put(const std::string& bytes);

  std::string path_, buffer_;
  UniqueFd fd_;
  uint64_t size_ = 0;
  std::unique_ptr<Hash> hash_;
  // Where a table set lies, by its XXH3-128: unlike sets do not collide by accident.
  std::map<std::array<uint64_t, 2>, uint64_t> tables_;
};

}  // namespace headrace
