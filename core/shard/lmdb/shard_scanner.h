// Reads a shard's LMDB file from its first page on, without an index: for making and checking one. Serving never comes here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/shard/dataset.h"

namespace headrace {

// Where a value of the current sample lies in the file, all of it inside.
struct ScannedValue {
  uint64_t offset = 0;
  uint64_t length = 0;
};

// Not thread-safe. Trusts nothing of the file and runs no code of LMDB's, which would: whatever the pages hold, the worst is
// DATA_LOSS. Takes one page of memory for each level of each database; reads no page of large values.
class ShardScanner {
 public:
  // DATA_LOSS when the file is no LMDB file or lacks a field's database.
  static absl::StatusOr<std::unique_ptr<ShardScanner>> Open(const std::string& path, const std::vector<Field>& fields);
  ~ShardScanner();

  // Goes on to the next sample, in ascending order; false behind the last one. DATA_LOSS where the pages are damaged, the
  // fields' databases hold different samples or a value is no part of the file.
  absl::StatusOr<bool> Next();
  uint64_t sample() const { return sample_; }
  // Indexed like the fields.
  const std::vector<ScannedValue>& values() const { return values_; }
  // Fills `bytes`, value.length of them.
  absl::Status Read(const ScannedValue& value, void* bytes) const;

 private:
  class Impl;
  explicit ShardScanner(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
  uint64_t sample_ = 0;
  std::vector<ScannedValue> values_;
};

}  // namespace headrace
