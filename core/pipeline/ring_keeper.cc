#include "core/pipeline/ring_keeper.h"

#include <pthread.h>

#include <utility>

namespace headrace {

RingKeeper::RingKeeper(MemoryBudget* budget) : budget_(budget), thread_([this] { Run(); }) {}

RingKeeper::~RingKeeper() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void RingKeeper::Populate(std::function<bool()> populate_next) {
  {
    std::lock_guard lock(mutex_);
    if (takes_jobs_) populating_.push_back(std::move(populate_next));
  }
  changed_.notify_all();
}

void RingKeeper::StopPopulating() {
  std::deque<std::function<bool()>> dropped;  // after the lock: they hold sessions
  std::unique_lock lock(mutex_);
  takes_jobs_ = false;
  dropped.swap(populating_);
  changed_.wait(lock, [this] { return !is_populating_; });
}

void RingKeeper::ExpectBack(uint64_t bytes) { budget_->ReleaseSoon(bytes); }

void RingKeeper::GiveBack(std::unique_ptr<HostRing> ring, RingMemory memory) {
  {
    std::lock_guard lock(mutex_);
    leaving_.push_back({std::move(ring), memory});
  }
  changed_.notify_all();
}

void RingKeeper::Run() {
  pthread_setname_np(pthread_self(), "hr-memory");
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !leaving_.empty() || !populating_.empty(); });
    if (!leaving_.empty()) {
      Leaving job = std::move(leaving_.front());
      leaving_.pop_front();
      lock.unlock();
      const uint64_t bytes = job.ring->total_bytes(), untaken = bytes - job.ring->populated_bytes();
      if (job.memory == RingMemory::kDiscard) job.ring->Discard();
      job.ring.reset();
      budget_->Released(bytes, untaken);
      lock.lock();
    } else if (stop_) {
      return;
    } else {
      // One slot of each session in turn, so that a large ring does not keep the next session waiting.
      std::function<bool()> job = std::move(populating_.front());
      populating_.pop_front();
      is_populating_ = true;
      lock.unlock();
      if (!job()) job = nullptr;
      lock.lock();
      if (job && takes_jobs_) {
        populating_.push_back(std::move(job));
      } else if (job) {
        lock.unlock();
        job = nullptr;
        lock.lock();
      }
      is_populating_ = false;
      if (!takes_jobs_) changed_.notify_all();
    }
  }
}

}  // namespace headrace
