// Of which samples something was found right: one bit each, so that it is checked once.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace headrace {

// Shared by the threads that read a dataset.
class VerifiedSamples {
 public:
  explicit VerifiedSamples(uint64_t num_samples) : words_((num_samples + 63) / 64) {}

  bool Contains(uint64_t sample) const {
    return (words_[sample / 64].load(std::memory_order_relaxed) >> (sample % 64) & 1) != 0;
  }
  void Insert(uint64_t sample) {
    words_[sample / 64].fetch_or(uint64_t{1} << (sample % 64), std::memory_order_relaxed);
  }

 private:
  std::vector<std::atomic<uint64_t>> words_;
};

}  // namespace headrace
