// The bookkeeping of one session: its slots, tickets and the batches on their way. No threads and no locks: all calls but
// those on constants are made under the scheduler's mutex.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/pipeline/batch_fill.h"
#include "core/pipeline/fair_clock.h"
#include "core/pipeline/pipeline.h"
#include "core/pipeline/volley.h"

namespace headrace {

class SessionState {
 public:
  using Wake = std::function<void()>;

  // `gpu`: who makes the batches; null: the decode threads. `shard_map`: what it may read itself; null: nothing.
  SessionState(uint64_t id, SessionSpec spec, BatchLayout layout, std::unique_ptr<HostRing> ring, Gpu* gpu,
               std::shared_ptr<const ShardMap> shard_map, std::shared_ptr<VerifiedSamples> verified, const Cursor& cursor, Wake wake);

  // Constants; any thread.
  uint64_t id() const { return id_; }
  const SessionSpec& spec() const { return spec_; }
  const BatchLayout& layout() const { return layout_; }
  Gpu* gpu() const { return gpu_; }
  const ShardMap* shard_map() const { return shard_map_.get(); }
  VerifiedSamples* verified() const { return verified_.get(); }
  const Wake& wake() const { return wake_; }
  uint32_t first_ticket() const { return 1; }
  // Valid until TakeRing; threads that hold a unit may use it without the mutex.
  HostRing* ring() const { return ring_.get(); }
  BatchFill& batch(int slot) { return *batches_[static_cast<size_t>(slot)]; }

  void SlotPopulated(int slot);

  // Looks for a place to fill. Begins the next batch when all places of the present one are claimed and a slot is free; when
  // none is, the session rests: it is watched, later asleep, and not looked at again before OnDoorbell or Watch finds a release.
  enum class Work {
    kNone,
    kSome,   // Claim has something to give
    kAgain,  // only empty batches so far, one for each slot: ask again, after the others
  };
  Work LookForWork();
  // LookForWork was kSome. At most `max_places` places.
  Unit Claim(uint32_t max_places);
  // The same for places that a GPU has left to the decode threads.
  bool HasLeft() const { return !left_.empty(); }
  Unit ClaimLeft(uint32_t max_places);
  // The unit is done. True: it was its batch's last, so the caller lays the batch out (FinishBatch, without the mutex) and calls
  // Complete. `bad` is moved from. `left`: those of its places that the GPU has not made.
  bool Finish(const Unit& unit, std::vector<BadOutcome>* bad, std::vector<uint32_t>* left = nullptr);
  void Complete(int slot);
  // Slots that wait to be filled, and whether the trainer waits for one.
  int CountFreeSlots() const;
  bool TrainerWaits() const { return wake_wanted_; }
  // With a GPU: of whom the batch claimed last is one; null: of none.
  std::shared_ptr<Volley> volley() const { return volley_; }
  // There are more batches of it to be claimed.
  bool volley_goes_on() const { return volley_left_ > 0; }

  // New cursor; returns the first ticket of the new sequence.
  uint32_t Seek(const Cursor& cursor);
  // Reads the `released` words, at most 64. True: the session woke up.
  bool OnDoorbell();
  // A watched session's client rings only before it waits; somebody calls Watch every few milliseconds instead, so that a
  // trainer's step makes no system call. True: something was released, the session woke up. After a second without that the
  // session falls asleep: it asks for a doorbell at the next release. A GPU gives slots back without a bell, so its sessions are
  // watched on, less often.
  bool watched() const { return rest_ == Rest::kWatched; }
  bool Watch(int64_t now_ns);
  bool rests_long() const { return rests_long_; }
  // Nothing is begun or published any more.
  void Close();
  bool closed() const { return closed_; }
  // The ring, once the session is closed and no thread uses it; null before, and the second time.
  std::unique_ptr<HostRing> TakeRing();

  // Threads other than decoders that use the ring (the populating one).
  void AddUser() { ++users_; }
  void RemoveUser() { --users_; }

  // A batch was published and the client waits: true once.
  bool TakeWake();
  // Whether this sample was not reported before.
  bool FirstReport(uint64_t sample);

  SessionStats Stats() const;
  // How far the threads are, for reading ahead.
  struct Progress {
    uint64_t sequence;        // changes with every Seek: what was planned before is void
    uint64_t claimed_places;  // in this sequence
    Cursor batch_start;       // of the batch whose places are claimed now or next
    uint64_t batch_first;     // places of this sequence before that batch
  };
  Progress progress() const;
  uint64_t claimed_places() const { return claimed_places_; }

  // For the scheduler.
  int threads = 0;         // that hold a unit
  int batches_on_gpu = 0;  // of these: units of its GPU's threads
  Share share;
  uint64_t decode_ns = 0;  // thread time
  uint64_t batches = 0, samples = 0, bad_samples = 0, left_samples = 0;

 private:
  struct Slot {
    uint32_t ticket = 0;  // last one published here: the daemon's own note
    bool populated = false;
  };
  bool IsFree(int slot) const;
  int FindFreeSlot() const;
  // The same, but none while a GPU's session waits for a volley's worth of them, with batches ahead.
  int FindSlotToFill() const;
  int CountAhead() const;  // batches that are ready or being made
  bool ClientWaits() const;
  void BeginVolley();
  void EndVolley();
  enum class Rest { kAwake, kWatched, kAsleep };
  bool RestUntilReleased(Rest rest);
  void WakeUp();
  void Begin(int slot);
  void PublishInOrder();
  void Publish(int slot);
  uint32_t CountBad(int slot);
  void AbandonAll();

  const uint64_t id_;
  const SessionSpec spec_;
  const BatchLayout layout_;
  const std::shared_ptr<const ShardMap> shard_map_;
  const std::shared_ptr<VerifiedSamples> verified_;
  const Wake wake_;
  std::unique_ptr<HostRing> ring_;
  Gpu* const gpu_;
  const int volley_size_;  // at most
  const uint64_t ring_bytes_;
  std::vector<Slot> slots_;
  std::vector<std::unique_ptr<BatchFill>> batches_;  // one per slot
  std::deque<int> order_;                            // slots of begun batches in ticket order
  Cursor cursor_;                                    // of the next batch to begin
  uint32_t next_ticket_ = 1;
  std::shared_ptr<Volley> volley_;
  int volley_left_ = 0;  // its batches that are not begun
  int last_slot_ = -1;  // begun last
  int claiming_ = -1;   // slot of the batch that has unclaimed places
  std::deque<int> left_;  // slots of batches with unclaimed places that a GPU left
  int users_ = 0;
  Rest rest_ = Rest::kAwake;
  int64_t watched_since_ns_ = 0;  // 0: at the next Watch
  bool rests_long_ = false;
  bool closed_ = false, wake_wanted_ = false;
  uint64_t sequence_ = 0, claimed_places_ = 0;
  std::unordered_set<uint64_t> reported_;
  std::unordered_set<uint64_t> counted_bad_;  // under max_bad: never more than that
};

}  // namespace headrace
