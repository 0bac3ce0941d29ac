// Writes one shard's LMDB file. The same values in the same order give the same bytes (docs/shard_format.md).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/shard/dataset.h"

namespace headrace {

// Not thread-safe. Keeps at most one transaction (32 MiB of values and one more) in memory.
class ShardWriter {
 public:
  // Makes `path` (nothing may be there). `shard_bytes`: the wanted size; it becomes part of the file (the map size).
  static absl::StatusOr<std::unique_ptr<ShardWriter>> Create(const std::string& path, const std::vector<Field>& fields,
                                                             uint64_t shard_bytes);
  // Drops what was not committed; removes nothing.
  ~ShardWriter();

  // One value per field, copied. Samples must come in ascending order. Blocks on the disk at each commit.
  // RESOURCE_EXHAUSTED naming the file when the disk is full. After an error only destruction is allowed.
  absl::Status Append(uint64_t sample, absl::Span<const absl::Span<const uint8_t>> values);

  uint64_t num_samples() const { return num_samples_; }
  // The shard has reached its wanted size or number of samples.
  bool full() const;

  // Commits and closes the file, which is complete then but perhaps not yet on the disk.
  absl::Status Finish();

 private:
  class Impl;
  explicit ShardWriter(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
  uint64_t num_samples_ = 0;
};

}  // namespace headrace
