#include "tests/pipeline/read_gate.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

namespace headrace::testing {
namespace {

struct Waiting {
  int dataset;
  bool may_go = false;
};

std::mutex g_mutex;
std::condition_variable g_changed;
std::map<int, int> g_datasets;  // by descriptor; empty: there is no gate
std::deque<Waiting*> g_waiting;

void Wait(int fd) {
  std::unique_lock lock(g_mutex);
  const auto found = g_datasets.find(fd);
  if (found == g_datasets.end()) return;
  Waiting self{found->second};
  g_waiting.push_back(&self);
  g_changed.notify_all();
  g_changed.wait(lock, [&] { return self.may_go; });
}

int LetFirstGo() {
  Waiting* const first = g_waiting.front();
  g_waiting.pop_front();
  first->may_go = true;
  g_changed.notify_all();
  return first->dataset;
}

}  // namespace

ReadGate::ReadGate(const std::vector<const Dataset*>& datasets) {
  std::lock_guard lock(g_mutex);
  for (size_t i = 0; i < datasets.size(); ++i) {
    for (uint32_t shard = 0; shard < datasets[i]->num_shards(); ++shard) {
      g_datasets[datasets[i]->shard_fd(shard)] = static_cast<int>(i);
    }
  }
}

ReadGate::~ReadGate() {
  std::lock_guard lock(g_mutex);
  g_datasets.clear();
  while (!g_waiting.empty()) LetFirstGo();
}

std::vector<int> ReadGate::WaitFor(size_t threads, std::chrono::milliseconds patience) {
  std::unique_lock lock(g_mutex);
  std::vector<int> datasets;
  if (!g_changed.wait_for(lock, patience, [&] { return g_waiting.size() == threads; })) return datasets;
  for (const Waiting* waiting : g_waiting) datasets.push_back(waiting->dataset);
  return datasets;
}

int ReadGate::LetOneGo() {
  std::unique_lock lock(g_mutex);
  g_changed.wait(lock, [] { return !g_waiting.empty(); });
  return LetFirstGo();
}

}  // namespace headrace::testing

// In place of libc's, for the whole program.
extern "C" ssize_t pread(int fd, void* data, size_t size, off_t offset) {
  headrace::testing::Wait(fd);
  return syscall(SYS_pread64, fd, data, size, offset);
}
