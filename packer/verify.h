// `headrace verify`: is everything in a dataset as it was packed?
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "core/base/status.h"

namespace headrace {

struct VerifyOptions {
  std::string dataset;
  int threads = 0;     // 0: one per core this process may use
  bool decode = true;  // every image, whole
};

// Written meanwhile, to be shown by another thread.
struct VerifyProgress {
  std::atomic<uint64_t> shard_bytes{0}, shard_bytes_total{0};  // first pass: checksums
  std::atomic<uint64_t> samples{0}, samples_total{0};          // second pass; samples_total is 0 before
  std::atomic<uint64_t> bad{0};
  std::atomic<bool> stop{false};
};

struct VerifySummary {
  uint64_t samples = 0, shards = 0;
  uint64_t bad_shards = 0;   // checksum, or LMDB against index
  uint64_t bad_samples = 0;  // row, hash, header or pixels
  uint64_t damaged = 0;      // decode, but their library warns
};

// First per shard: the LMDB file's checksum, then what LMDB says against the index. Then per sample: its row, the hash of
// each value, the image's header against the row, and the pixels. `found` is called for each finding, in order:
// "shard 0: …", "shard 0, sample 17 (cats/1.jpg): …"; `is_bad` is false for damaged images.
// An error means that no more could be said: the dataset does not open (files missing, cut off, or their headers
// damaged), or CANCELLED.
absl::StatusOr<VerifySummary> VerifyDataset(const VerifyOptions& options, VerifyProgress* progress,
                                            const std::function<void(bool is_bad, const std::string& what)>& found);

}  // namespace headrace
