// A session's slots as the client sees them (docs/protocol.md, "The ring"), and which of them are
// leased.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/connection.h"
#include "client/headrace.h"
#include "client/process.h"
#include "client/protocol.h"
#include "client/status.h"
#include "client/tensor.h"

namespace headrace::client {

class Ring {
 public:
  // Maps the memfd of OPEN's answer, shared and writable. INTERNAL when it is not what the answer
  // says, or not sealed against shrinking (reading it could then kill this process).
  static Status Map(const hr_open_answer& answer, const Descriptor& memfd,
                    std::unique_ptr<Ring>* out);
  ~Ring();

  enum class Found { kReady, kNotYet, kBroken };
  // Looks for `ticket`. Gives back whatever older is ready and not leased. kBroken: a later ticket
  // is ready, this one will never be, or a slot was filled while it was leased.
  Found Find(uint32_t ticket, uint32_t* slot);

  // The daemon's line of a slot that is ready, copied once: the daemon's memory is looked at only
  // there.
  struct Line {
    uint32_t length, status, bad_samples, counted_bad;
    uint64_t epoch, position, next_epoch, next_position;
  };
  Line ReadLine(uint32_t slot) const;
  // The report of a slot whose status is not OK.
  std::string ReadReport(uint32_t slot) const;
  // Sample `i` of a line's `counted_bad`, which is HR_MAX_COUNTED_BAD at most.
  uint64_t ReadCountedBad(uint32_t slot, uint32_t i) const;

  // Fills the batch's first `max_fields` fields, num_fields, length and leased from `slot`, and
  // leases the slot or gives it back at once. RESOURCE_EXHAUSTED when there is no memory for
  // copies, FAILED_PRECONDITION for a field in GPU memory without LeaseAll: the slot is untouched.
  Status HandOut(uint32_t slot, uint32_t ticket, uint32_t length, uint32_t max_fields,
                 hr_batch* batch);
  // From now on HandOut makes views of all fields and leases the last slot too.
  void LeaseAll() { lease_all_ = true; }
  void Release(uint32_t slot, uint32_t ticket);
  // A leased slot whose `released` word a GPU is going to write, whatever becomes of its tensors.
  void LeaveToGpu(uint32_t slot) { slots_[slot].left_to_gpu = true; }
  uint32_t LeasedTicket(uint32_t slot) const { return slots_[slot].leased_ticket.load(std::memory_order_relaxed); }
  std::atomic<uint32_t>* ReleasedWord(uint32_t slot) { return &control_->slots[slot].released; }

  // Gives back the slots whose tensors are all gone.
  void ReleaseDropped();
  // Rings if something was given back since the last call and the daemon waits for it; before this
  // side waits also a daemon that looks by itself every now and then.
  void WakeDaemon(Connection* connection, bool before_waiting = false);

  // The client's `waiting` word: set before the last look, cleared afterwards.
  void SetWaiting(bool waiting);
  bool stopping() const { return control_->daemon.stopping.load(std::memory_order_acquire) != 0; }
  std::string stop_reason() const;

  uint32_t num_leased() const { return num_leased_; }
  // Look at every slot. Also right on other threads.
  uint32_t CountLeased() const;
  uint32_t CountReady(uint32_t from_ticket) const;
  // Whether it must stay mapped: it has living tensors or is held.
  bool IsInUse() const { return CountLeased() > 0 || holds_.load(std::memory_order_acquire) > 0; }
  void Hold() { holds_.fetch_add(1, std::memory_order_relaxed); }
  void Unhold() { holds_.fetch_sub(1, std::memory_order_acq_rel); }
  uint64_t process() const { return process_; }

 private:
  struct Slot {
    std::atomic<uint32_t> living{0};         // tensors; written by deleters
    std::atomic<uint32_t> leased_ticket{0};  // 0: not leased; written by the session only
    std::unique_ptr<ViewTensor[]> views;
    bool left_to_gpu = false;
  };
  Ring() = default;
  // What is leased of a slot that was left to a GPU ends when that has written the word.
  void SeeWhatTheGpuReleased(uint32_t slot);
  bool IsOnDevice(uint32_t field) const {
    return answer_.device_slot_bytes > 0 && field == answer_.device_field;
  }
  uint8_t* data(uint32_t slot) const {
    return base_ + HR_CONTROL_BYTES + slot * answer_.slot_bytes;
  }
  void PrefetchExpected() const;

  hr_open_answer answer_;
  uint64_t process_ = 0;
  uint8_t* base_ = nullptr;
  hr_control* control_ = nullptr;
  std::unique_ptr<Slot[]> slots_;
  uint32_t expected_slot_ = 0;
  uint32_t num_leased_ = 0;  // as of the last ReleaseDropped and HandOut
  bool given_back_ = false, lease_all_ = false;
  std::atomic<uint32_t> holds_{0};
};

// Keeps a ring while it is in use. It is unmapped here or in a later ReapRetired, never in a
// deleter.
void Retire(std::unique_ptr<Ring> ring);
// Unmaps retired rings that are not in use. One load when there are none.
void ReapRetired();

}  // namespace headrace::client
