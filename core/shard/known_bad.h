// Images that serving could not decode, remembered in a side file beside the dataset, so that later runs need not read them
// again. Specified in docs/shard_format.md, "bad_samples.txt".
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/shard/dataset.h"

namespace headrace {

// Where the daemon may keep what must not lie with the data: $STATE_DIRECTORY/, $XDG_STATE_HOME/headrace or
// ~/.local/state/headrace; "" where none of these is an absolute path.
std::string DefaultStateDir();

// Thread-safe. What it knows is advice about whole files of immutable shards: losing a line costs one decoding.
class KnownBad {
 public:
  static constexpr char kFileName[] = "bad_samples.txt";
  static constexpr size_t kMaxSamples = 65536;  // remembered; further ones are decoded each time
  static constexpr uint64_t kMaxFileBytes = uint64_t{8} << 20;

  struct Entry {
    uint32_t rows = 0;   // decoding this many rows of the stored image fails, and so do more; 0: its bytes are wrong
    std::string reason;  // without shard and sample
    int64_t time_ns = 0;  // st_ctim of its shard's file when it was found
  };

  // Reads DIR/bad_samples.txt and STATE_DIR/HASH.txt (unless `state_dir` is ""). Lines of another dataset, or of a shard whose
  // file has changed since, and whatever is no line of this format, count for nothing. Blocks on the disk.
  KnownBad(std::shared_ptr<const Dataset> dataset, const std::string& state_dir);

  // Why decoding the first `rows` stored rows of the sample's image would fail, if that is known and its shard's file has not
  // changed since. A load of one word while nothing is.
  std::optional<std::string> Find(uint64_t sample, uint32_t rows) const;
  // Remembers it, in the dataset's folder, or if that cannot be written in the other, or else for the life of this object. A
  // reason above 500 bytes or with control characters is not kept. Blocks on the disk, for one short write; kill -9 in the middle
  // of it leaves a line that counts for nothing.
  void Add(uint64_t sample, uint32_t rows, const std::string& reason);

  std::map<uint64_t, Entry> entries() const;
  // Why a side file that is there could not be read; "" if all could.
  const std::string& problem() const { return problem_; }

 private:
  struct Place {
    UniqueFd dir;
    std::string name;
    bool waste = false;  // holds lines that count for nothing: once it is full it is written anew
  };
  void AddPlace(const std::string& dir, const std::string& name);
  void Load(Place* place, const std::string& path);
  // False: a line that counts for nothing.
  bool Parse(const std::string& line);
  std::string Line(uint64_t sample, const Entry& entry) const;
  bool Append(Place* place, const std::string& line);
  bool Merge(uint64_t sample, Entry entry);
  // When the file of the sample's shard changed last: whoever restores it changes it.
  int64_t ShardTime(uint64_t sample) const;

  const std::shared_ptr<const Dataset> dataset_;
  const std::string state_dir_;
  std::string problem_;
  mutable std::mutex mutex_;
  std::atomic<bool> is_empty_ = true;
  std::map<uint64_t, Entry> entries_;
  std::vector<Place> places_;
};

}  // namespace headrace
