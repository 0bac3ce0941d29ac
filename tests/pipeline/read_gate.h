// Holds decode threads up where they read a sample, so that a test decides in which order they go on, whatever the machine does.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "core/shard/dataset.h"

namespace headrace::testing {

// While it lives, every pread from the shards of `datasets` waits here. One at a time.
class ReadGate {
 public:
  explicit ReadGate(const std::vector<const Dataset*>& datasets);
  ~ReadGate();
  ReadGate(const ReadGate&) = delete;
  ReadGate& operator=(const ReadGate&) = delete;

  // Blocks until `threads` of them wait. The places in `datasets` of what they read, by their time of arrival; nothing if fewer came
  // in time.
  std::vector<int> WaitFor(size_t threads, std::chrono::milliseconds patience);
  // Lets go on who came first, also if that is still to come. What it reads.
  int LetOneGo();
};

}  // namespace headrace::testing
