#include "core/pipeline/scheduler.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/augment/simd_target.h"
#include "core/pipeline/clocks.h"

namespace headrace {
namespace {

// Samples of one unit at most: 8 × 0.2 ms is short against a batch's time, long against a pick.
constexpr uint32_t kMaxUnitPlaces = 8;
// How often an idle thread looks whether a trainer has given something back: late enough to cost nothing (some 5 µs each), early
// enough for a ring of the fastest trainers, who ring before they wait.
constexpr std::chrono::milliseconds kWatchPeriod{2};
// Nobody rings for slots that a GPU gives back: its threads look this often, and less when nothing came back for a second.
constexpr std::chrono::milliseconds kGpuWatchPeriod{1};
constexpr std::chrono::milliseconds kRestPeriod{50};
// The reading-ahead thread is told of the threads' progress every so many places.
constexpr uint64_t kProgressPlaces = 64;

// What there is for decode threads.
SessionState::Work WorkFor(SessionState* session) {
  if (session->gpu() == nullptr) return session->LookForWork();
  return session->HasLeft() ? SessionState::Work::kSome : SessionState::Work::kNone;
}

// What a thread has used so far.
struct Usage {
  int64_t wall_ns, cpu_ns;
  long waits;  // times it gave up its core by itself, which it does for the disk only

  static Usage Now() {
    rusage usage;
    ::getrusage(RUSAGE_THREAD, &usage);  // its times are those of the last tick, up to 4 ms ago, which may be no unit's
    return {SteadyNs(), ThreadNs(), usage.ru_nvcsw};
  }
};

}  // namespace

Scheduler::Scheduler(const PipelineOptions& options, RingKeeper* keeper)
    : options_(options), keeper_(keeper), limit_(std::max(1, options.decode_threads)) {
  totals_.decode_threads = limit_.limit();
  totals_.simd_target = SimdTarget();
  totals_.device_memory_bytes = options.device_memory_bytes;
  int processors = 0;
  if (options.numa_nodes.size() > 1) {
    for (const NumaNode& node : options.numa_nodes) {
      Group& group = groups_.emplace_back();
      group.node = node.id;
      group.processors = node.processors;
      processors += CPU_COUNT(&node.processors);
    }
  } else {
    groups_.emplace_back();
  }
  // As the processors are spread over the nodes.
  auto home = groups_.begin();
  int passed = 0;  // processors of homes before this one
  for (int i = 0; i < totals_.decode_threads; ++i) {
    const auto last = [&] { return int64_t{passed + CPU_COUNT(&home->processors)} * totals_.decode_threads; };
    while (home->node >= 0 && int64_t{i} * processors >= last()) passed += CPU_COUNT(&(home++)->processors);
    threads_.emplace_back([this, i, group = &*home] { Run(i, group); });
  }
}

Scheduler::~Scheduler() { Stop(); }

void Scheduler::Stop() {
  {
    Lock lock(mutex_);
    if (stop_) return;
    while (!sessions_.empty()) CloseLocked(std::shared_ptr<SessionState>(sessions_.back()), RingMemory::kKeep);
    stop_ = true;
  }
  for (Group& group : groups_) group.work.notify_all();
  gpu_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Scheduler::Group* Scheduler::GroupOf(const SessionState& session) {
  for (Group& group : groups_) {
    if (group.node >= 0 && group.node == session.spec().numa_node) return &group;
  }
  return nullptr;
}

void Scheduler::NotifyThreads(int wanted, Group* near) {
  wanted = std::min({wanted, idle_, limit_.limit() - working_});
  const auto notify = [&wanted](Group& group) {
    for (int i = 0; i < group.idle && wanted > 0; ++i, --wanted) group.work.notify_one();
  };
  if (near != nullptr) notify(*near);
  for (Group& group : groups_) {
    if (&group != near) notify(group);
  }
}

void Scheduler::Add(std::shared_ptr<SessionState> session) {
  Lock lock(mutex_);
  // As if it had slept: a newcomer's first batch comes a little sooner, and then it has its share.
  clock_.Join(&session->share);
  if (stop_) {
    session->Close();
    keeper_->ExpectBack(session->ring()->total_bytes());
    closing_.push_back({session, RingMemory::kKeep});
    GiveBackIfUnused(session.get(), RingMemory::kKeep);
    return;
  }
  MayBegin(*session);
  sessions_.push_back(std::move(session));
  progressed_ = true;
  CallOut(&lock);
}

uint32_t Scheduler::Seek(SessionState* session, const Cursor& cursor) {
  Lock lock(mutex_);
  const uint32_t ticket = session->Seek(cursor);
  MayBegin(*session);
  progressed_ = true;
  CallOut(&lock);
  return ticket;
}

void Scheduler::OnDoorbell(SessionState* session) {
  Lock lock(mutex_);
  if (session->OnDoorbell() || session->gpu() != nullptr) MayBegin(*session);
}

void Scheduler::SlotPopulated(SessionState* session, int slot) {
  Lock lock(mutex_);
  session->SlotPopulated(slot);
  MayBegin(*session);
}

void Scheduler::MarkStopping(SessionState* session, const std::string& reason) {
  Lock lock(mutex_);
  if (session->closed()) return;
  hr_control* control = session->ring()->control();
  const size_t length = std::min(reason.size(), sizeof(control->daemon.reason) - 1);
  std::memcpy(control->daemon.reason, reason.data(), length);
  control->daemon.reason[length] = '\0';
  control->daemon.stopping.store(1, std::memory_order_seq_cst);
}

void Scheduler::Close(const std::shared_ptr<SessionState>& session, RingMemory memory) {
  Lock lock(mutex_);
  CloseLocked(session, memory);
}

void Scheduler::CloseLocked(const std::shared_ptr<SessionState>& session, RingMemory memory) {
  if (session->closed()) return;
  session->Close();
  keeper_->ExpectBack(session->ring()->total_bytes());
  totals_.batches += session->batches;
  totals_.samples += session->samples;
  totals_.bad_samples += session->bad_samples;
  closing_.push_back({session, memory});
  std::erase(sessions_, session);
  GiveBackIfUnused(session.get(), memory);
}

bool Scheduler::UseRing(SessionState* session) {
  Lock lock(mutex_);
  if (session->closed()) return false;
  session->AddUser();
  return true;
}

void Scheduler::DoneWithRing(const std::shared_ptr<SessionState>& session) {
  Lock lock(mutex_);
  session->RemoveUser();
  if (session->closed()) GiveBackIfUnused(session.get(), RingMemory::kKeep);
}

// The last one who used a closed session's ring gives it back.
void Scheduler::GiveBackIfUnused(SessionState* session, RingMemory memory) {
  std::unique_ptr<HostRing> ring = session->TakeRing();
  if (!ring) return;
  std::erase_if(closing_, [&](const Closing& entry) {
    const std::shared_ptr<SessionState> other = entry.session.lock();
    if (other.get() == session) memory = entry.memory;
    return other == nullptr || other.get() == session;
  });
  keeper_->GiveBack(std::move(ring), memory);
}

SessionStats Scheduler::Stats(const SessionState& session) const {
  Lock lock(mutex_);
  return session.Stats();
}

PipelineStats Scheduler::Stats() const {
  Lock lock(mutex_);
  PipelineStats stats = totals_;
  stats.threads_in_use = limit_.limit();
  stats.disk_share = disk_share_.share();
  for (const auto& session : sessions_) {
    stats.sessions.push_back(session->Stats());
    stats.batches += session->batches;
    stats.samples += session->samples;
    stats.bad_samples += session->bad_samples;
  }
  return stats;
}

void Scheduler::VisitSessions(const std::function<void(const std::shared_ptr<SessionState>&)>& visit) {
  Lock lock(mutex_);
  for (const auto& session : sessions_) visit(session);
}

uint32_t Scheduler::UnitPlaces(const SessionState& session) const {
  const int threads = session.spec().max_threads > 0 ? std::min(session.spec().max_threads, totals_.decode_threads)
                                                     : totals_.decode_threads;
  // Four units per thread and batch at least, so that threads do not wait long for the last one.
  const uint32_t quarter = static_cast<uint32_t>(session.spec().batch_size) / (4 * static_cast<uint32_t>(threads));
  return std::clamp<uint32_t>(quarter, 1, kMaxUnitPlaces);
}

bool Scheduler::Pick(Job* job, Group* home, bool* again) {
  std::shared_ptr<SessionState>* best = nullptr;
  Group* near = nullptr;  // the best one's
  int with_work = 0;
  *again = false;
  if (working_ >= limit_.limit()) return false;  // each of those looks again when its unit is done
  for (auto& session : sessions_) {
    const int limit = session->spec().max_threads;
    if (limit > 0 && session->threads - session->batches_on_gpu >= limit) continue;
    const SessionState::Work work = WorkFor(session.get());
    if (session->TakeWake()) wakes_.push_back(session);
    *again |= work == SessionState::Work::kAgain;
    if (work != SessionState::Work::kSome) continue;
    ++with_work;
    clock_.Refresh(&session->share);
    Group* const group = GroupOf(*session);
    const bool is_far = group != nullptr && group != home, best_is_far = near != nullptr && near != home;
    if (best != nullptr && (is_far != best_is_far ? is_far : session->share.virtual_ns >= (*best)->share.virtual_ns)) continue;
    best = &session;
    near = group;
  }
  if (best == nullptr) {
    if (!*again) limit_.Full(SteadyNs());
    return false;
  }
  if (near != nullptr && near != home && near->idle > 0) {
    NotifyThreads(1, near);
    return false;
  }
  SessionState& session = **best;
  job->session = *best;
  const uint64_t before = session.claimed_places();
  job->unit = session.gpu() != nullptr ? session.ClaimLeft(UnitPlaces(session)) : session.Claim(UnitPlaces(session));
  progressed_ |= before == 0 || before / kProgressPlaces != session.claimed_places() / kProgressPlaces;
  job->charge_ns = clock_.Begin(&session.share, job->unit.count);
  ++working_;  // until Work is done
  // A thread that sees more work than its own wakes two others: soon all are awake, and few for nothing.
  if (idle_ > 0 && (with_work > 1 || WorkFor(&session) == SessionState::Work::kSome)) NotifyThreads(2, near);
  if (session.TakeWake()) wakes_.push_back(*best);
  return true;
}

void Scheduler::Work(Job* job, UnitFiller* filler, Lock* lock) {
  SessionState& session = *job->session;
  BatchFill& fill = session.batch(job->unit.slot);
  HostRing& ring = *session.ring();
  std::vector<BadOutcome> bad;
  lock->unlock();
  const Usage before = Usage::Now();
  filler->Fill(session.spec(), session.layout(), job->unit, &fill, ring.memory(job->unit.slot), options_.verify,
               session.verified(), &bad);
  const Usage after = Usage::Now();
  const uint64_t bytes = filler->TakeBytesRead();
  lock->lock();
  --working_;
  const int limit = limit_.limit();
  limit_.Worked(after.wall_ns - before.wall_ns);

  // A session pays for the time its units keep a thread from others' work: waiting for the disk counts, waiting for a core that
  // somebody else took does not.
  const auto cpu_ns = after.cpu_ns - before.cpu_ns;
  const int64_t spent_ns = after.waits == before.waits ? cpu_ns : after.wall_ns - before.wall_ns;
  disk_share_.Worked(spent_ns, cpu_ns);
  Group* const near = GroupOf(session);
  Done(job, spent_ns, cpu_ns, bytes, &bad, nullptr, lock);
  if (limit_.limit() > limit) NotifyThreads(limit_.limit(), near);
}

void Scheduler::Done(Job* job, int64_t spent_ns, int64_t cpu_ns, uint64_t bytes_read, std::vector<BadOutcome>* bad,
                     std::vector<uint32_t>* left, Lock* lock) {
  SessionState& session = *job->session;
  clock_.End(&session.share, job->charge_ns, spent_ns, job->unit.count);
  session.decode_ns += static_cast<uint64_t>(cpu_ns);
  totals_.decode_ns += static_cast<uint64_t>(cpu_ns);
  totals_.bytes_read += bytes_read;
  for (const BadOutcome& outcome : *bad) {
    if (options_.on_bad_sample && session.FirstReport(outcome.sample.sample)) {
      reports_.push_back(absl::StrCat(session.spec().dataset->dir(), ": ", outcome.sample.Message()));
    }
  }
  if (session.Finish(job->unit, bad, left)) {
    lock->unlock();
    FinishBatch(session.spec(), session.layout(), session.ring()->memory(job->unit.slot), &session.batch(job->unit.slot));
    lock->lock();
    session.Complete(job->unit.slot);
    if (session.gpu() == nullptr && session.TrainerWaits()) {
      limit_.Hurry();
    } else if (session.gpu() == nullptr && session.CountFreeSlots() > 1) {
      limit_.Behind();
    }
  }
  if (session.HasLeft()) NotifyThreads(2, nullptr);
  if (session.gpu() != nullptr) gpu_work_.notify_all();  // a batch that was abandoned may have left its slot
  if (session.TakeWake()) wakes_.push_back(job->session);
  if (session.closed()) {
    GiveBackIfUnused(&session, RingMemory::kKeep);
    closed_.push_back(std::move(job->session));  // perhaps the last reference: not to be dropped under the mutex
  }
  job->session.reset();
}

void Scheduler::MayBegin(const SessionState& session) {
  if (session.gpu() != nullptr) {
    gpu_work_.notify_all();
  } else {
    NotifyThreads(1, GroupOf(session));  // which wakes further ones where there is work
  }
}

std::shared_ptr<SessionState> Scheduler::PickForGpu(const Gpu* gpu, bool* again) {
  std::shared_ptr<SessionState> best;
  *again = false;
  for (auto& session : sessions_) {
    if (session->gpu() != gpu) continue;
    const SessionState::Work work = session->LookForWork();
    if (session->TakeWake()) wakes_.push_back(session);
    *again |= work == SessionState::Work::kAgain;
    if (work != SessionState::Work::kSome) continue;
    if (session->volley_goes_on()) return session;  // others wait for it
    clock_.Refresh(&session->share);
    if (best == nullptr || session->share.virtual_ns < best->share.virtual_ns) best = session;
  }
  return best;
}

bool Scheduler::ClaimForGpu(const Gpu* gpu, bool wait, Job* job) {
  Lock lock(mutex_);
  while (!stop_) {
    bool again;
    if (std::shared_ptr<SessionState> session = PickForGpu(gpu, &again)) {
      job->unit = session->Claim(UINT32_MAX);
      job->charge_ns = clock_.Begin(&session->share, job->unit.count);
      job->volley = session->volley();
      if (session->volley_goes_on()) gpu_work_.notify_all();
      job->session = std::move(session);
      progressed_ = true;
      CallOut(&lock);
      return true;
    }
    if (again || CallOut(&lock)) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
      continue;
    }
    if (!wait) return false;
    const auto watched = [gpu](const auto& session) { return session->gpu() == gpu && session->watched(); };
    const auto active = [&](const auto& session) { return watched(session) && !session->rests_long(); };
    if (std::none_of(sessions_.begin(), sessions_.end(), watched)) {
      gpu_work_.wait(lock);
    } else {
      const bool soon = std::any_of(sessions_.begin(), sessions_.end(), active);
      gpu_work_.wait_for(lock, soon ? kGpuWatchPeriod : kRestPeriod);
      for (const auto& session : sessions_) {
        if (watched(session)) session->Watch(SteadyNs());
      }
    }
  }
  return false;
}

void Scheduler::DoneOnGpu(Job* job, int64_t spent_ns, uint64_t bytes_read, std::vector<uint32_t>* left) {
  Lock lock(mutex_);
  std::vector<BadOutcome> none;
  Done(job, spent_ns, spent_ns, bytes_read, &none, left, &lock);
  CallOut(&lock);
}

// Runs what must not run under the mutex; true: it was free meanwhile.
bool Scheduler::CallOut(Lock* lock) {
  bool called = false;
  while (!wakes_.empty() || !reports_.empty() || !closed_.empty() || progressed_) {
    auto wakes = std::exchange(wakes_, {});
    auto closed = std::exchange(closed_, {});
    const auto reports = std::exchange(reports_, {});
    const bool progressed = std::exchange(progressed_, false);
    lock->unlock();
    for (const auto& session : wakes) {
      if (session->wake()) session->wake()();
    }
    for (const std::string& report : reports) options_.on_bad_sample(report);
    if (progressed && on_progress_) on_progress_();
    wakes.clear();
    closed.clear();
    lock->lock();
    called = true;
  }
  return called;
}

// Until there may be work. One of the idle threads watches, if there is something to watch; after each look it returns, so that
// it sees all that there is to do: a notification that comes while it is about to look wakes nobody.
void Scheduler::Idle(Group* home, Lock* lock) {
  const auto watched = [](const auto& session) { return session->watched() && session->gpu() == nullptr; };
  ++idle_;
  ++home->idle;
  if (watching_ || std::none_of(sessions_.begin(), sessions_.end(), watched)) {
    home->work.wait(*lock);
  } else {
    watching_ = true;
    home->work.wait_for(*lock, kWatchPeriod);
    watching_ = false;
    for (const auto& session : sessions_) {
      if (watched(session)) session->Watch(SteadyNs());
    }
  }
  --idle_;
  --home->idle;
}

void Scheduler::Run(int number, Group* home) {
  pthread_setname_np(pthread_self(), absl::StrCat("hr-decode-", number).c_str());
  if (home->node >= 0) (void)::sched_setaffinity(0, sizeof home->processors, &home->processors);  // refused: so be it
  if (options_.niceness > 0) (void)::nice(options_.niceness);  // of this thread alone, on Linux; refused: so be it
  UnitFiller filler;
  Job job;
  Lock lock(mutex_);
  while (!stop_) {
    bool again;
    if (Pick(&job, home, &again)) {
      CallOut(&lock);
      Work(&job, &filler, &lock);
    } else if (again) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    } else if (!CallOut(&lock)) {  // nothing happened since Pick looked
      Idle(home, &lock);
    }
  }
}

}  // namespace headrace
