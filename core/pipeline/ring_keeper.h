// The thread "hr-memory": what takes long about a ring's memory, away from the decoding threads and the event loop.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "core/pipeline/memory_budget.h"
#include "core/pipeline/pipeline.h"

namespace headrace {

// Jobs are bounded by the number of sessions: each has one ring. Thread-safe.
class RingKeeper {
 public:
  explicit RingKeeper(MemoryBudget* budget);
  ~RingKeeper();  // does what is left of giving back, and drops what is left of populating

  // Runs `populate_next` again and again until it returns false, rings to be given back first. It populates one slot.
  void Populate(std::function<bool()> populate_next);
  // Drops what is left of populating, and waits for the job that runs; further ones are not taken. For the end of what they use.
  void StopPopulating();
  // A session is closed: its ring of `bytes` comes to GiveBack as soon as no thread uses it. Once per ring, before GiveBack.
  void ExpectBack(uint64_t bytes);
  // Unmaps the ring, under kDiscard after punching it empty, and returns its memory to the budget.
  void GiveBack(std::unique_ptr<HostRing> ring, RingMemory memory);

 private:
  struct Leaving {
    std::unique_ptr<HostRing> ring;
    RingMemory memory;
  };
  void Run();

  MemoryBudget* const budget_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Leaving> leaving_;
  std::deque<std::function<bool()>> populating_;
  bool takes_jobs_ = true, is_populating_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace headrace
