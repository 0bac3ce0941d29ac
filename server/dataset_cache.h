// Opened datasets, shared by all sessions and requests that name the same unchanged directory.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "core/shard/dataset.h"
#include "server/data_roots.h"

namespace headrace {

// Thread-safe. Keeps the most recently used datasets open; what a session uses stays open anyway.
class DatasetCache {
 public:
  explicit DatasetCache(DataRoots roots) : roots_(std::move(roots)) {}

  // Blocks on the disk (cold threads only). A directory whose dataset.json is another file, or has another time or size,
  // than before is opened anew; sessions of the old one go on with it. Errors: those of DataRoots and Dataset::Open.
  absl::StatusOr<std::shared_ptr<const Dataset>> Get(const std::string& path);

 private:
  static constexpr size_t kMaxEntries = 16;
  struct Stamp {  // of dataset.json
    dev_t device = 0;
    ino_t inode = 0;
    int64_t seconds = 0, nanoseconds = 0, bytes = 0;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };
  struct Entry {
    std::string dir;
    Stamp stamp;
    std::shared_ptr<const Dataset> dataset;
  };
  static absl::StatusOr<Stamp> ReadStamp(const std::string& dir);

  const DataRoots roots_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // most recently used first
};

}  // namespace headrace
