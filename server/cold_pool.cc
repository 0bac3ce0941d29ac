#include "server/cold_pool.h"

#include <pthread.h>

#include <string>
#include <utility>

namespace headrace {

ColdPool::ColdPool(int num_threads, size_t max_waiting) : max_waiting_(max_waiting) {
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this, i] { Work(i); });
}

ColdPool::~ColdPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    waiting_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool ColdPool::Submit(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || waiting_.size() >= max_waiting_) return false;
    waiting_.push_back(std::move(task));
  }
  changed_.notify_one();
  return true;
}

void ColdPool::Work(int number) {
  pthread_setname_np(pthread_self(), ("hr-cold-" + std::to_string(number)).c_str());
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      task = std::move(waiting_.front());
      waiting_.pop_front();
    }
    task();
  }
}

}  // namespace headrace
