#include "client/process.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <vector>

namespace headrace::client {
namespace {

// None of these is ever destroyed: deleters and other libraries' destructors run until the very end
// of a process.
pthread_once_t g_once = PTHREAD_ONCE_INIT;
std::atomic<std::atomic<uint64_t>*> g_page{nullptr};
std::atomic<uint64_t> g_last_process{0};
pthread_mutex_t g_forks = PTHREAD_MUTEX_INITIALIZER;
std::vector<int>* g_descriptors = nullptr;  // guarded by g_forks

void BeforeFork() { pthread_mutex_lock(&g_forks); }
void AfterForkInParent() { pthread_mutex_unlock(&g_forks); }
void AfterForkInChild() {
  for (int fd : *g_descriptors) close(fd);
  g_descriptors->clear();
  g_page.load(std::memory_order_relaxed)->store(0, std::memory_order_relaxed);
  pthread_mutex_unlock(&g_forks);
}

void Setup() {
  const long page_bytes = sysconf(_SC_PAGESIZE);
  void* page =
      mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) abort();  // not even one page: nothing could work
  // Where the kernel refuses (some sandboxes), the handler above still wipes the page for fork(3).
  (void)madvise(page, page_bytes, MADV_WIPEONFORK);
  auto* word = new (page) std::atomic<uint64_t>(0);
  g_descriptors = new std::vector<int>;
  g_page.store(word, std::memory_order_release);
  pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild);
}

}  // namespace

uint64_t CurrentProcess() {
  pthread_once(&g_once, Setup);
  std::atomic<uint64_t>* word = g_page.load(std::memory_order_acquire);
  uint64_t process = word->load(std::memory_order_acquire);
  if (process != 0) return process;
  // The first call here, or the first in a forked child: g_last_process is ordinary memory and
  // holds the parent's number.
  const uint64_t fresh = g_last_process.fetch_add(1) + 1;
  return word->compare_exchange_strong(process, fresh) ? fresh : process;
}

bool IsCurrentProcess(uint64_t process) {
  return g_page.load(std::memory_order_acquire)->load(std::memory_order_acquire) == process;
}

ForksHeldOff::ForksHeldOff() {
  CurrentProcess();
  pthread_mutex_lock(&g_forks);
}
ForksHeldOff::~ForksHeldOff() { pthread_mutex_unlock(&g_forks); }

Descriptor::Descriptor(int fd, const ForksHeldOff&) : fd_(fd) {
  if (fd >= 0) g_descriptors->push_back(fd);
}

void Descriptor::Close() {
  if (fd_ < 0) return;
  const ForksHeldOff held;
  // Not in the table: this is a forked child, the handler has closed it and the number may be
  // somebody else's by now.
  const auto found = std::find(g_descriptors->begin(), g_descriptors->end(), fd_);
  if (found != g_descriptors->end()) {
    g_descriptors->erase(found);
    close(fd_);
  }
  fd_ = -1;
}

int Descriptor::Release() {
  if (fd_ < 0) return -1;
  const ForksHeldOff held;
  const auto found = std::find(g_descriptors->begin(), g_descriptors->end(), fd_);
  if (found != g_descriptors->end()) g_descriptors->erase(found);
  const int fd = fd_;
  fd_ = -1;
  return fd;
}

}  // namespace headrace::client
