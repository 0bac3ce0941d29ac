// The decode threads and who works for which session.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/pipeline/batch_fill.h"
#include "core/pipeline/disk_share.h"
#include "core/pipeline/fair_clock.h"
#include "core/pipeline/pipeline.h"
#include "core/pipeline/ring_keeper.h"
#include "core/pipeline/session_state.h"
#include "core/pipeline/thread_limit.h"

namespace headrace {

// A thread that is free works for the session that has received the least thread time so far (fair_clock.h), on a unit: a few
// samples of one batch, so that all threads work on the same batch and its latency is small. While a batch's last units are in
// work the next one is begun.
//
// On a machine of several memory nodes each thread has its home on one. It prefers sessions that want to be near its home, and
// leaves a session of another node to a thread there while one is idle.
//
// One mutex guards all sessions; it is held for about a microsecond per unit of some hundred. Thread-safe.
class Scheduler {
 public:
  Scheduler(const PipelineOptions& options, RingKeeper* keeper);
  ~Scheduler();  // Stop

  void Add(std::shared_ptr<SessionState> session);
  uint32_t Seek(SessionState* session, const Cursor& cursor);
  void OnDoorbell(SessionState* session);
  void Close(const std::shared_ptr<SessionState>& session, RingMemory memory);
  void MarkStopping(SessionState* session, const std::string& reason);
  void SlotPopulated(SessionState* session, int slot);
  // Between these two calls the ring stays although the session is closed; false: it is closed already.
  bool UseRing(SessionState* session);
  void DoneWithRing(const std::shared_ptr<SessionState>& session);

  struct Job {
    std::shared_ptr<SessionState> session;
    Unit unit;
    int64_t charge_ns = 0;
    std::shared_ptr<Volley> volley;  // of whom a GPU's batch is one; null: of none
  };
  // For a GPU's thread: a whole batch of the session on that GPU that has received the least thread time. Without one it waits if
  // `wait`. False: there is none (not waited), or the scheduler stops.
  bool ClaimForGpu(const Gpu* gpu, bool wait, Job* job);
  // The batch is made but for the places `left`, which the decode threads make; `spent_ns` of thread time went into it.
  void DoneOnGpu(Job* job, int64_t spent_ns, uint64_t bytes_read, std::vector<uint32_t>* left);

  SessionStats Stats(const SessionState& session) const;
  // All but the numbers of memory in use, and of the host's.
  PipelineStats Stats() const;

  // Closes the sessions (kKeep) and joins the threads. Later calls find closed sessions.
  void Stop();

  // For the reading-ahead thread: calls `visit` on every open session under the mutex.
  void VisitSessions(const std::function<void(const std::shared_ptr<SessionState>&)>& visit);
  // Called without the mutex whenever a session's threads have gone on by a batch, and after Add and Seek.
  void SetProgressListener(std::function<void()> listener) { on_progress_ = std::move(listener); }

 private:
  // The threads of one memory node.
  struct Group {
    int node = -1;  // −1: there is one group, and all sessions are near it
    cpu_set_t processors;
    std::condition_variable work;
    int idle = 0;
  };
  struct Closing {
    std::weak_ptr<SessionState> session;
    RingMemory memory;
  };
  using Lock = std::unique_lock<std::mutex>;

  void Run(int number, Group* home);
  bool Pick(Job* job, Group* home, bool* again);
  // The group near the session; null: all are.
  Group* GroupOf(const SessionState& session);
  void Work(Job* job, UnitFiller* filler, Lock* lock);
  // What a thread has done for `job` is charged, and its batch goes on. `left` as in DoneOnGpu.
  void Done(Job* job, int64_t spent_ns, int64_t cpu_ns, uint64_t bytes_read, std::vector<BadOutcome>* bad, std::vector<uint32_t>* left,
            Lock* lock);
  std::shared_ptr<SessionState> PickForGpu(const Gpu* gpu, bool* again);
  // A session may have something to begin.
  void MayBegin(const SessionState& session);
  void GiveBackIfUnused(SessionState* session, RingMemory memory);
  bool CallOut(Lock* lock);
  uint32_t UnitPlaces(const SessionState& session) const;
  // `near` first.
  void NotifyThreads(int wanted, Group* near);
  void Idle(Group* home, Lock* lock);
  void CloseLocked(const std::shared_ptr<SessionState>& session, RingMemory memory);

  const PipelineOptions options_;
  RingKeeper* const keeper_;
  std::function<void()> on_progress_;

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<SessionState>> sessions_;
  std::vector<std::shared_ptr<SessionState>> wakes_;  // clients to be woken once the mutex is free
  std::vector<std::shared_ptr<SessionState>> closed_;  // to be let go once the mutex is free
  std::vector<std::string> reports_;
  std::vector<Closing> closing_;  // closed, but threads still write into the ring
  bool progressed_ = false;
  std::deque<Group> groups_;  // at least one
  std::condition_variable gpu_work_;  // for the threads of all GPUs, which are few
  int idle_ = 0, working_ = 0;
  bool watching_ = false;  // an idle thread looks at the watched sessions every few milliseconds
  bool stop_ = false;
  FairClock clock_;
  ThreadLimit limit_;
  DiskShare disk_share_;
  PipelineStats totals_;  // of batches and samples: those of closed sessions only
  std::vector<std::thread> threads_;
};

}  // namespace headrace
