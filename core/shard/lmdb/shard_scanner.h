// Reads a shard as any LMDB program would: for making and checking an index. Serving never comes here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/shard/dataset.h"

namespace headrace {

// A value of the current sample. `bytes` lies in LMDB's map, valid until the scanner is destroyed.
struct ScannedValue {
  uint64_t offset = 0;  // in the LMDB file
  absl::Span<const uint8_t> bytes;
};

// Not thread-safe. LMDB trusts its file: check the file's size and checksum before, or a damaged one may crash the
// process. Touches no page of large values unless `bytes` is read.
class ShardScanner {
 public:
  // DATA_LOSS when the file is no LMDB file or lacks a field's database.
  static absl::StatusOr<std::unique_ptr<ShardScanner>> Open(const std::string& path, const std::vector<Field>& fields);
  ~ShardScanner();

  // Goes on to the next sample, in ascending order; false behind the last one. DATA_LOSS where the fields' databases
  // hold different samples or a value is no part of the file.
  absl::StatusOr<bool> Next();
  uint64_t sample() const { return sample_; }
  // Indexed like the fields.
  const std::vector<ScannedValue>& values() const { return values_; }

 private:
  class Impl;
  explicit ShardScanner(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
  uint64_t sample_ = 0;
  std::vector<ScannedValue> values_;
};

}  // namespace headrace
