// The few threads that may wait for a disk on behalf of the event loop: "hr-cold-N".
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace headrace {

class ColdPool {
 public:
  // `max_waiting`: tasks that may stand in line.
  ColdPool(int num_threads, size_t max_waiting);
  // Drops what waits, joins what runs.
  ~ColdPool();

  // Never blocks; false when the line is full.
  bool Submit(std::function<void()> task);

 private:
  void Work(int number);

  const size_t max_waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace headrace
