#include "core/pipeline/shard_pinner.h"

#include <linux/ioprio.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace headrace {
namespace {

constexpr int kNiceness = 19;

}  // namespace

std::shared_ptr<const ShardMap> ShardPinner::Want(const std::shared_ptr<const Dataset>& dataset, Gpu* gpu) {
  const std::lock_guard lock(signal_->mutex);
  if (stop_) return nullptr;
  auto found = std::find_if(entries_.begin(), entries_.end(), [&](const auto& entry) { return entry->dataset == dataset; });
  const uint64_t bytes = dataset->all_shard_bytes() + dataset->all_index_bytes();
  if (found == entries_.end() || (*found)->users.expired()) {
    uint64_t used = bytes;
    for (const auto& entry : entries_) used += entry->users.expired() ? 0 : entry->bytes;  // those are on their way out
    if (used > limit_bytes_) return nullptr;
  }
  if (found == entries_.end()) {
    absl::StatusOr<std::unique_ptr<ShardMap>> map = ShardMap::Create(dataset);
    if (!map.ok()) return nullptr;  // then bytes are read, as before
    entries_.push_back(std::make_unique<Entry>(Entry{dataset, gpu, bytes, *std::move(map), {}}));
    found = std::prev(entries_.end());
    if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
    signal_->changed.notify_one();
  }
  Entry& entry = **found;
  std::shared_ptr<const ShardMap> users = entry.users.lock();
  if (users == nullptr) {
    users = std::shared_ptr<const ShardMap>(entry.map.get(), [map = entry.map, signal = signal_](const ShardMap*) {
      const std::lock_guard lock(signal->mutex);
      signal->changed.notify_one();
    });
    entry.users = users;
  }
  return users;
}

// Under the mutex. What there is to do: an entry without users to let go of, or else a part to pin.
ShardPinner::Entry* ShardPinner::FindWork() {
  const auto find = [&](const auto& is_wanted) {
    const auto at = std::find_if(entries_.begin(), entries_.end(), is_wanted);
    return at == entries_.end() ? nullptr : at->get();
  };
  Entry* const unused = find([](const auto& entry) { return entry->users.expired(); });
  return unused != nullptr ? unused : find([](const auto& entry) { return entry->next_part < entry->map->num_parts(); });
}

void ShardPinner::Run() {
  pthread_setname_np(pthread_self(), "hr-pin");
  // Of this thread alone; refused: so be it.
  (void)::nice(kNiceness);
  (void)::syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0));
  std::unique_lock lock(signal_->mutex);
  for (;;) {
    Entry* entry = nullptr;
    signal_->changed.wait(lock, [&] { return stop_ || (entry = FindWork()) != nullptr; });
    if (stop_) return;
    if (entry->users.expired()) {
      const auto at = std::find_if(entries_.begin(), entries_.end(), [&](const auto& each) { return each.get() == entry; });
      std::unique_ptr<Entry> gone = std::move(*at);
      entries_.erase(at);
      lock.unlock();
      gone.reset();  // unpins, which takes a while
      lock.lock();
      continue;
    }
    const size_t part = entry->next_part;
    lock.unlock();
    const absl::Status status = entry->map->Add(
        part, [gpu = entry->gpu](const uint8_t* address, uint64_t bytes) { return gpu->Pin(address, bytes); },
        [this, entry] {
          const std::lock_guard stop_lock(signal_->mutex);
          return stop_ || FindWork()->users.expired();  // somebody's turn to go
        });
    lock.lock();
    // A part that cannot be pinned is read as ever; so are those behind it, whose turn will not come.
    entry->next_part = status.ok() || absl::IsCancelled(status) ? part + status.ok() : entry->map->num_parts();
  }
}

uint64_t ShardPinner::pinned_bytes() const {
  const std::lock_guard lock(signal_->mutex);
  uint64_t bytes = 0;
  for (const auto& entry : entries_) bytes += entry->map->pinned_bytes();
  return bytes;
}

void ShardPinner::Stop() {
  {
    const std::lock_guard lock(signal_->mutex);
    stop_ = true;
    signal_->changed.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  std::vector<std::unique_ptr<Entry>> gone;
  const std::lock_guard lock(signal_->mutex);
  gone.swap(entries_);
}

}  // namespace headrace
