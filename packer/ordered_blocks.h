// A loop over numbers on several threads whose results come in order.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace headrace {

// Cuts 0 … count − 1 into blocks of `block` and calls `work(first, end, thread)` for each on one of `threads` threads
// (thread: 0 … threads − 1); gives what it returns to `consume`, in order, one call at a time, on any of the threads.
// At most 4 × threads blocks are ahead of the one that `consume` waits for. Ends early when `stop` is set. Blocks.
template <typename Result>
void OrderedBlocks(uint64_t count, uint64_t block, int threads, const std::atomic<bool>& stop,
                   const std::function<Result(uint64_t first, uint64_t end, int thread)>& work,
                   const std::function<void(Result&&)>& consume) {
  std::mutex mutex;
  std::condition_variable consumed_more;
  std::map<uint64_t, Result> waiting;
  uint64_t taken = 0, consumed = 0;
  const uint64_t blocks = (count + block - 1) / block, ahead = 4 * static_cast<uint64_t>(threads);
  const auto run = [&](int thread) {
    while (true) {
      uint64_t mine;
      {
        std::unique_lock lock(mutex);
        consumed_more.wait(lock, [&] { return stop || taken >= blocks || taken < consumed + ahead; });
        if (stop || taken >= blocks) break;
        mine = taken++;
      }
      Result result = work(mine * block, std::min(count, (mine + 1) * block), thread);
      std::lock_guard lock(mutex);
      waiting.emplace(mine, std::move(result));
      for (auto next = waiting.begin(); next != waiting.end() && next->first == consumed; ++consumed) {
        consume(std::move(next->second));
        next = waiting.erase(next);
      }
      consumed_more.notify_all();
    }
    consumed_more.notify_all();
  };
  std::vector<std::thread> pool;
  for (int i = 1; i < threads; ++i) pool.emplace_back(run, i);
  run(0);
  for (std::thread& thread : pool) thread.join();
}

// Cores that this process may use.
int UsableCores();

}  // namespace headrace
