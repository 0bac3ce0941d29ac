// A dataset's index files in memory, for those who read rows and entry data of hundreds of thousands of samples per second: no system
// call for each, and each checksum of entry data only once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/shard/verified_samples.h"

namespace headrace {

class Dataset;

// Add is called by one thread, the others by any.
class HeldIndex {
 public:
  explicit HeldIndex(const Dataset& dataset);

  // Reads a shard's index file, unless it is here. Blocks on the disk. DATA_LOSS: the file is shorter than it was;
  // RESOURCE_EXHAUSTED: no memory.
  absl::Status Add(const Dataset& dataset, uint32_t shard);
  // The file's bytes, as long as this lives; none before it was added.
  absl::Span<const uint8_t> Find(uint32_t shard) const;

  // Of which samples the checksum of the entry data in these bytes was found right.
  VerifiedSamples* verified() const { return &verified_; }

 private:
  struct File {
    std::unique_ptr<uint8_t[]> bytes;
    uint64_t size = 0;
    std::atomic<bool> is_here = false;
  };
  std::vector<File> files_;  // by shard
  mutable VerifiedSamples verified_;
};

}  // namespace headrace
