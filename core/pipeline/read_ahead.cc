#include "core/pipeline/read_ahead.h"

#include <pthread.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/pipeline/page_cache.h"

namespace headrace {
namespace {

constexpr uint64_t kMaxBytesAhead = uint64_t{256} << 20;
constexpr uint64_t kMinPlacesAhead = 64;   // a disk wants some depth even where batches are small
constexpr uint64_t kProbeEvery = 16;       // places
constexpr int kColdPlaces = 1024;          // prefetched after a probe that found nothing in the page cache
constexpr uint64_t kPlacesPerSlice = 256;  // of one session before the next one's turn
constexpr int kBlocksPerSlice = 64;

}  // namespace

ReadAhead::ReadAhead(Scheduler* scheduler, int batches)
    : scheduler_(scheduler), batches_(batches), memory_bytes_(UsableMemoryBytes()), thread_([this] { Run(); }) {}

ReadAhead::~ReadAhead() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void ReadAhead::Notify() {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(notified_, true)) return;
  }
  changed_.notify_one();
}

uint64_t ReadAhead::Window(const SessionSpec& spec) const {
  const uint64_t most = std::max(kMinPlacesAhead, kMaxBytesAhead / MeanSampleBytes(*spec.dataset));
  return std::clamp(static_cast<uint64_t>(batches_) * static_cast<uint64_t>(spec.batch_size), kMinPlacesAhead, most);
}

void ReadAhead::LookAt(const SessionState& session, uint64_t sample, bool probe, Plan* plan) {
  const Dataset& dataset = *session.spec().dataset;
  if (!dataset.ReadRow(sample, &row_).ok()) return;  // whoever fills the place reports it
  const BatchLayout& layout = session.layout();
  for (size_t i = 0; i < layout.fields.size(); ++i) {
    const int field = layout.dataset_fields[i];
    if (field < 0) continue;
    const FieldKind kind = dataset.fields()[static_cast<size_t>(field)].kind;
    if (kind != FieldKind::kImage && kind != FieldKind::kText) continue;
    const ValueLocation& location = row_.values[static_cast<size_t>(field)].location;
    if (probe && !IsCached(dataset, location)) plan->cold_places = kColdPlaces;
    // All of an image, although its pixels may need less: which part, only its draw and its entry points can say, and the first
    // time all of it is hashed.
    if (plan->cold_places > 0) {
      PrefetchRange(dataset.shard_fd(location.shard), location.offset, location.length);
    }
  }
  if (plan->cold_places > 0) dataset.PrefetchEntries(row_);
}

bool ReadAhead::Advance(const Task& task, Plan* plan) {
  const SessionSpec& spec = task.session->spec();
  const SessionState::Progress& progress = task.progress;
  if (!plan->order || plan->sequence != progress.sequence || plan->planned < progress.claimed_places) {
    // A new sequence, or overtaken: what threads have claimed they read themselves.
    plan->sequence = progress.sequence;
    plan->planned = progress.claimed_places;
    plan->cursor = progress.batch_start;
    plan->place = static_cast<uint32_t>(progress.claimed_places - progress.batch_first);
    plan->range = StepAt(spec, plan->cursor);
    plan->order.emplace(spec.dataset->size(), spec.seed, plan->cursor.epoch, spec.shuffle);
  }
  const uint64_t goal = progress.claimed_places + Window(spec);
  // Steps that are empty for this rank make no place, so they are counted against the slice too.
  for (uint64_t turn = 0; turn < kPlacesPerSlice; ++turn) {
    if (plan->planned >= goal) return false;
    if (plan->place >= plan->range.count) {
      const Cursor next = Normalized(spec, plan->range.next);
      if (next.epoch != plan->cursor.epoch) {
        plan->order.emplace(spec.dataset->size(), spec.seed, next.epoch, spec.shuffle);
      }
      plan->cursor = next;
      plan->range = StepAt(spec, next);
      plan->place = 0;
      if (plan->range.count == 0 && next.position == 0) return false;  // this rank's part of an epoch is empty
      continue;
    }
    const bool probe = plan->planned % kProbeEvery == 0;
    if (probe || plan->cold_places > 0) {
      LookAt(*task.session, plan->order->SampleAt(plan->range.first_position + plan->place), probe, plan);
      if (plan->cold_places > 0) --plan->cold_places;
    }
    ++plan->place;
    ++plan->planned;
  }
  return true;
}

// Sessions here that take parts of the same epochs.
int ReadAhead::LocalRanks(const std::vector<Task>& tasks, const SessionSpec& spec) {
  return static_cast<int>(std::count_if(tasks.begin(), tasks.end(), [&](const Task& task) {
    const SessionSpec& other = task.session->spec();
    return other.seed == spec.seed && other.shuffle == spec.shuffle && other.world_size == spec.world_size &&
           other.dataset->hash() == spec.dataset->hash();
  }));
}

void ReadAhead::Run() {
  pthread_setname_np(pthread_self(), "hr-readahead");
  std::vector<Task> tasks;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return notified_ || stop_; });
    if (stop_) return;
    notified_ = false;
    lock.unlock();
    for (auto& [id, plan] : plans_) plan.seen = false;
    scheduler_->VisitSessions([&](const std::shared_ptr<SessionState>& session) {
      tasks.push_back({session, session->progress()});
    });
    bool more = false;
    for (const Task& task : tasks) {
      Plan& plan = plans_[task.session->id()];
      plan.seen = true;
      more |= Advance(task, &plan);
      const SessionSpec& spec = task.session->spec();
      if (BlockReadAhead::Fits(spec, LocalRanks(tasks, spec), memory_bytes_)) {
        more |= plan.blocks.Advance(spec, plan.cursor, *plan.order, kBlocksPerSlice);
      }
    }
    std::erase_if(plans_, [](const auto& entry) { return !entry.second.seen; });
    tasks.clear();
    lock.lock();
    notified_ |= more;
  }
}

}  // namespace headrace
