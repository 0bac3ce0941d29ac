// The thread "hr-readahead": keeps the next batches' bytes on their way from the disk, in the order that is known.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/batch/order.h"
#include "core/pipeline/block_read_ahead.h"
#include "core/pipeline/scheduler.h"

namespace headrace {

// For each session, the values of the next places behind those that threads work on are handed to posix_fadvise(WILLNEED), which
// starts the disk and does not wait. At most 256 MB a session are on their way. While the page cache holds the data only
// every 16th place is looked at (preadv2 with RWF_NOWAIT), so a warm dataset costs about 0.2 µs a sample.
class ReadAhead {
 public:
  ReadAhead(Scheduler* scheduler, int batches);
  ~ReadAhead();

  // The threads have gone on. Thread-safe, does not block.
  void Notify();

 private:
  // How far a session's plan has come.
  struct Plan {
    uint64_t sequence = 0, planned = 0;  // places, as SessionState::Progress counts them
    Cursor cursor;                       // of the step that `planned` lies in
    uint32_t place = 0;                  // within that step
    StepRange range{};
    std::optional<EpochOrder> order;
    int cold_places = 0;  // so many more are prefetched without looking
    BlockReadAhead blocks;
    bool seen = false;
  };
  struct Task {
    std::shared_ptr<SessionState> session;
    SessionState::Progress progress;
  };

  void Run();
  // One slice of work; true: there is more.
  bool Advance(const Task& task, Plan* plan);
  static int LocalRanks(const std::vector<Task>& tasks, const SessionSpec& spec);
  uint64_t Window(const SessionSpec& spec) const;
  void LookAt(const SessionState& session, uint64_t sample, bool probe, Plan* plan);

  Scheduler* const scheduler_;
  const int batches_;
  const uint64_t memory_bytes_;
  std::map<uint64_t, Plan> plans_;  // by session
  SampleRow row_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool notified_ = true, stop_ = false;
  std::thread thread_;
};

}  // namespace headrace
