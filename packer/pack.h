// `headrace pack`: many files into a dataset (docs/shard_format.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "core/base/status.h"
#include "core/decode/entry/entry_data.h"

namespace headrace {

inline constexpr uint64_t kMinShardBytes = uint64_t{64} << 10, kMaxShardBytes = uint64_t{1} << 40;

struct PackOptions {
  std::string source;       // a folder, or the list
  bool source_is_list = false;
  std::string destination;  // the dataset's folder; missing parents are made
  int threads = 0;          // that read and probe; 0: one per core this process may use
  uint64_t shard_bytes = uint64_t{1} << 30;  // kMinShardBytes … kMaxShardBytes
  bool keep_bytes = false;  // transcode nothing (docs/shard_format.md, "Transcoded images")
  bool strict = false;      // files that are rejected or skipped make it fail, after all were looked at
  bool check = false;       // decode every image
  int entry_interval = kDefaultEntryInterval;  // MCUs per entry point, 1 … kMaxEntryInterval; 0: no entry data
  bool overwrite = false;   // remove the dataset, or the beginning of one, that lies there
};

// Written while packing, to be shown by another thread.
struct PackProgress {
  enum class Phase : int { kStarting, kChecking, kPacking, kFinishing };
  std::atomic<Phase> phase{Phase::kStarting};
  std::atomic<uint64_t> files_done{0}, files_total{0};  // files_total: 0 while it is not known
  std::atomic<uint64_t> bytes_done{0};                  // of files
  std::atomic<uint64_t> checked_bytes{0}, check_bytes{0};  // kChecking: finished shards of a run before
  std::atomic<uint64_t> rejected{0};
  // Set to end: Pack returns CANCELLED soon. The same call then goes on.
  std::atomic<bool> stop{false};
};

struct PackSummary {
  uint64_t samples = 0, classes = 0, shards = 0;
  uint64_t image_bytes = 0, lmdb_bytes = 0;
  uint64_t rejected = 0, skipped = 0, damaged = 0, transcoded = 0, warnings = 0;
  uint64_t samples_kept = 0;      // of a run before that was ended
  bool was_complete = false;      // that run had ended after the last step; nothing was left to do
  std::string hash;
};

// Blocks until the dataset is complete on the disk. Errors:
//   NOT_FOUND, INVALID_ARGUMENT  the source or the list; no readable image in it
//   ALREADY_EXISTS               a dataset lies there
//   FAILED_PRECONDITION          another packer works there; options or files differ from those of the run that is to go
//                                on; `strict` and something was rejected or skipped
//   RESOURCE_EXHAUSTED           the disk is full (names the file)
//   CANCELLED                    progress->stop
// After an error, except for the first two kinds, the same call goes on where this one ended.
absl::StatusOr<PackSummary> Pack(const PackOptions& options, PackProgress* progress);

}  // namespace headrace
