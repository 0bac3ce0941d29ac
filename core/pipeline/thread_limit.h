// How many decode threads may work, so that no more do than keep the rings full: the arithmetic, without threads. Few threads
// that work all the time wake less often than many, and leave the other cores and their caches to the trainers.
#pragma once

#include <algorithm>
#include <cstdint>

namespace headrace {

// Times are in ns of any steady clock.
class ThreadLimit {
 public:
  // Over so long a time, at least, the threads' use is judged.
  static constexpr int64_t kWindowNs = 50'000'000;
  // Threads that work more of their time than this are too few; one fewer that would work less are enough.
  static constexpr double kBusy = 0.9;

  explicit ThreadLimit(int most) : most_(most), limit_(most) {}

  int limit() const { return limit_; }

  // A thread has worked, from `begin_ns` to `end_ns`. One thread less at a time, also after a pause, which says little of what
  // comes; more at once.
  void Worked(int64_t begin_ns, int64_t end_ns) {
    busy_ns_ += end_ns - begin_ns;
    if (window_begin_ns_ == kNever) window_begin_ns_ = begin_ns;
    const int64_t window_ns = end_ns - window_begin_ns_;
    if (window_ns < kWindowNs) return;
    const double busy = static_cast<double>(busy_ns_) / static_cast<double>(window_ns);  // threads
    if (busy > kBusy * limit_) {
      limit_ = std::min(most_, limit_ + std::max(1, limit_ / 4));
    } else if (busy < kBusy * (limit_ - 1)) {
      --limit_;
    }
    window_begin_ns_ = end_ns;
    busy_ns_ = 0;
  }

  // A trainer waits, or the rings are emptying: all threads, for a window at least.
  void Hurry() {
    limit_ = most_;
    window_begin_ns_ = kNever;
    busy_ns_ = 0;
  }

 private:
  static constexpr int64_t kNever = INT64_MIN;
  int most_, limit_;
  int64_t window_begin_ns_ = kNever, busy_ns_ = 0;
};

}  // namespace headrace
