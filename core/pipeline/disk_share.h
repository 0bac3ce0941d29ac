// How much of the decode threads' newest work is waiting for the disk: the arithmetic.
#pragma once

#include <cstdint>

namespace headrace {

class DiskShare {
 public:
  // A unit kept a thread for `spent_ns`, in which it computed for `cpu_ns`.
  void Worked(int64_t spent_ns, int64_t cpu_ns) {
    constexpr double kWeight = 0.01;  // of the newest hundred units or so
    spent_ += kWeight * (static_cast<double>(spent_ns) - spent_);
    waited_ += kWeight * (static_cast<double>(spent_ns - cpu_ns) - waited_);
  }
  // 0 … 1
  double share() const { return spent_ > 0 ? waited_ / spent_ : 0; }

 private:
  double spent_ = 0, waited_ = 0;
};

}  // namespace headrace
