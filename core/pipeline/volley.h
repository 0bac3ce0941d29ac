// Batches that go to a GPU together.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace headrace {

// A trainer that is not short of batches gets them several at a time: beside a trainer's kernels each burst costs a turn of the GPU,
// and bursts side by side take less of it than one behind the other. Each batch's thread plans it, waits here for the others, and
// launches. Thread-safe.
class Volley {
 public:
  explicit Volley(int size) : planning_(size) {}

  // One is planned. Waits for the others, not long: their threads may be busy otherwise.
  void Wait() {
    std::unique_lock lock(mutex_);
    if (--planning_ <= 0) return ready_.notify_all();
    ready_.wait_for(lock, kPatience, [this] { return planning_ <= 0; });
  }
  // Nobody else will come.
  void Dissolve() {
    const std::lock_guard lock(mutex_);
    planning_ = 0;
    ready_.notify_all();
  }

 private:
  static constexpr std::chrono::milliseconds kPatience{2};  // of a whole batch of photos: planning takes 1.5 ms

  std::mutex mutex_;
  std::condition_variable ready_;
  int planning_;
};

}  // namespace headrace
