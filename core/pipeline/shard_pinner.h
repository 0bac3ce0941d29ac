// Keeps the shards that GPUs read in memory, as far as that is allowed.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/device/gpu.h"
#include "core/read/shard_map.h"

namespace headrace {

// The thread "hr-pin" reads the shards of datasets that GPU sessions use and pins them, part by part, at idle priority of the disk.
// Thread-safe.
class ShardPinner {
 public:
  explicit ShardPinner(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  ~ShardPinner() { Stop(); }

  // For a session on `gpu`, which stays until Stop: what of the dataset is pinned, more and more. Null where all of it does not fit
  // beside what others use. While somebody has it, it stays.
  std::shared_ptr<const ShardMap> Want(const std::shared_ptr<const Dataset>& dataset, Gpu* gpu);
  uint64_t limit_bytes() const { return limit_bytes_; }
  uint64_t pinned_bytes() const;
  // Joins the thread and lets go of what nobody has.
  void Stop();

 private:
  struct Entry {
    std::shared_ptr<const Dataset> dataset;
    Gpu* gpu;
    uint64_t bytes;
    std::shared_ptr<ShardMap> map;
    std::weak_ptr<const ShardMap> users;
    size_t next_part = 0;
  };
  void Run();
  Entry* FindWork();

  const uint64_t limit_bytes_;
  // Lives as long as the last user, who tells the thread that he was it.
  struct Signal {
    std::mutex mutex;
    std::condition_variable changed;
  };
  const std::shared_ptr<Signal> signal_ = std::make_shared<Signal>();
  bool stop_ = false;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::thread thread_;  // from the first Want on
};

}  // namespace headrace
