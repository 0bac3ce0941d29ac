// When a session's batches come too late: the arithmetic, without clocks.
#pragma once

#include <algorithm>
#include <cstdint>

namespace headrace::client {

class Shortage {
 public:
  // Waits are notable when they take more than this part of so long a time: half a second of ten.
  static constexpr double kNotable = 0.05;
  static constexpr int64_t kWindowNs = 10'000'000'000;
  // One long wait is an accident.
  static constexpr int kWaits = 4;

  // A batch was waited for so long until now.
  void Waited(int64_t now_ns, int64_t waited_ns) {
    if (since_ns_ == 0) return Begin(now_ns);
    ++waits_;
    waited_ns_ += waited_ns;
    elapsed_ns_ = now_ns - since_ns_;
    if (elapsed_ns_ > window_ns_ && Share() <= kNotable) Begin(now_ns);
  }
  bool IsNotable() const { return waits_ >= kWaits && Share() > kNotable; }
  // Something was done about it. Should it not help, the next time takes four times as much.
  void Act() {
    window_ns_ *= 4;
    Begin(0);
  }

 private:
  double Share() const {
    return static_cast<double>(waited_ns_) / static_cast<double>(std::max(window_ns_, elapsed_ns_));
  }
  void Begin(int64_t now_ns) {
    since_ns_ = now_ns;
    waits_ = 0;
    waited_ns_ = elapsed_ns_ = 0;
  }

  int64_t window_ns_ = kWindowNs, since_ns_ = 0, waited_ns_ = 0, elapsed_ns_ = 0;
  int waits_ = 0;
};

}  // namespace headrace::client
