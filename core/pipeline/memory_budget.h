// How much memory the rings of all sessions may take together: the daemon's own budget and its control group's limit.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "core/base/status.h"

namespace headrace {

// What a control group still allows: its limit less what cannot be reclaimed (page cache can).
struct CgroupMemory {
  uint64_t limit_bytes = 0, free_bytes = 0;
  std::string file;  // where the limit stands, for messages
};

// The tightest limit of this process's control groups, version 2 or 1, from its own group up to the root. Nothing when there
// is none. `proc` and `sys` are "/proc" and "/sys/fs/cgroup" but in tests.
std::optional<CgroupMemory> ReadCgroupMemory(const std::string& proc, const std::string& sys);

// Thread-safe.
class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t limit_bytes);

  // RESOURCE_EXHAUSTED, with the numbers and what to change, when the ring of `num_slots` slots does not fit. Waits up to a
  // second for rings that are just being given back.
  absl::Status Reserve(int num_slots, uint64_t slot_bytes, uint64_t total_bytes);
  // So many bytes of what was reserved have been taken from the system.
  void Taken(uint64_t bytes);
  // A ring of `total_bytes` was closed, its memory goes soon; and it has gone. `untaken_bytes` of it had not been taken yet.
  void ReleaseSoon(uint64_t total_bytes);
  void Released(uint64_t total_bytes, uint64_t untaken_bytes);

  uint64_t limit_bytes() const { return limit_bytes_; }
  uint64_t used_bytes() const;

 private:
  const uint64_t limit_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable released_;
  uint64_t used_bytes_ = 0, leaving_bytes_ = 0;
  uint64_t untaken_bytes_ = 0;  // reserved, but the control group does not count them yet
  int rings_ = 0;
};

}  // namespace headrace
