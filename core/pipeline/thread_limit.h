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
  // One thread fewer is enough if it would work less than this part of its time.
  static constexpr double kBusy = 0.95;

  explicit ThreadLimit(int most) : most_(most), limit_(most) {}

  int limit() const { return limit_; }

  // A thread has worked so long.
  void Worked(int64_t ns) { busy_ns_ += ns; }

  // All rings are full: judges what the threads did since it was so before. One thread less at a time, also after a pause,
  // which says little of what comes.
  void Full(int64_t now_ns) {
    if (window_begin_ns_ == kNever) return Begin(now_ns);
    const int64_t window_ns = now_ns - window_begin_ns_;
    if (window_ns < kWindowNs) return;
    const double busy = static_cast<double>(busy_ns_) / static_cast<double>(window_ns);  // threads
    if (busy < kBusy * (limit_ - 1)) --limit_;
    Begin(now_ns);
  }

  // The rings are emptying.
  void Behind() {
    limit_ = std::min(most_, limit_ + 1);
    Begin(kNever);
  }

  // A trainer waits: all threads.
  void Hurry() {
    limit_ = most_;
    Begin(kNever);
  }

 private:
  static constexpr int64_t kNever = INT64_MIN;
  void Begin(int64_t now_ns) {
    window_begin_ns_ = now_ns;
    busy_ns_ = 0;
  }

  int most_, limit_;
  int64_t window_begin_ns_ = kNever, busy_ns_ = 0;
};

}  // namespace headrace
