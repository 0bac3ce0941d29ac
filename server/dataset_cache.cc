#include "server/dataset_cache.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

namespace headrace {

absl::StatusOr<DatasetCache::Stamp> DatasetCache::ReadStamp(const std::string& dir) {
  struct stat info = {};
  const std::string path = dir + "/dataset.json";
  if (stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, path);
  return Stamp{info.st_dev, info.st_ino, info.st_mtim.tv_sec, info.st_mtim.tv_nsec, info.st_size};
}

absl::StatusOr<std::shared_ptr<const Dataset>> DatasetCache::Get(const std::string& path) {
  HEADRACE_ASSIGN_OR_RETURN(const std::string dir, roots_.Resolve(path));
  // Read before opening: a change in between makes the next Get open once more, never keep what is stale.
  const absl::StatusOr<Stamp> stamp = ReadStamp(dir);
  {
    const std::lock_guard lock(mutex_);
    // What has been replaced or deleted must not stay open (and keep its disk space) for the cache's sake.
    std::erase_if(entries_, [&](const Entry& entry) {
      const absl::StatusOr<Stamp> current = entry.dir == dir ? stamp : ReadStamp(entry.dir);
      return !current.ok() || *current != entry.stamp;
    });
    const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.dir == dir; });
    if (found != entries_.end()) {
      entries_.splice(entries_.begin(), entries_, found);
      return found->dataset;
    }
  }
  HEADRACE_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> dataset, Dataset::Open(dir));
  HEADRACE_RETURN_IF_ERROR(roots_.CheckFiles(*dataset));
  if (stamp.ok()) {
    const std::lock_guard lock(mutex_);
    entries_.push_front(Entry{dir, *stamp, dataset});
    if (entries_.size() > kMaxEntries) entries_.pop_back();
  }
  return dataset;
}

}  // namespace headrace
