// `headrace index`: the index files of a dataset, made anew from its LMDB files.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace headrace {

// Written meanwhile, to be shown by another thread.
struct RebuildProgress {
  std::atomic<uint64_t> samples{0}, samples_total{0}, bytes{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::vector<std::string>
      warnings;  // guarded by `mutex`: samples whose entry data contradicted libjpeg (--check)
};

// Gives the same bytes as packing did with this `entry_interval` (−1: the one that packing was asked for with). Each file is
// replaced when its successor is complete on the disk. Needs dataset.json, not the old indexes. `threads` shards at a time (0:
// one per core this process may use). DATA_LOSS when a shard does not match its checksum: then its index is left as it is.
absl::Status RebuildIndex(const std::string& dataset, int threads, int entry_interval, RebuildProgress* progress);

}  // namespace headrace
