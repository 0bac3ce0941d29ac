#include "client/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>

#include "client/open_answer.h"

namespace headrace::client {
namespace {

// Never destroyed; guarded by ForksHeldOff, so that a forked child finds it whole.
std::vector<std::unique_ptr<Ring>>* g_retired = nullptr;
std::atomic<uint32_t> g_num_retired{0};

}  // namespace

Status Ring::Map(const hr_open_answer& answer, const Descriptor& memfd,
                 std::unique_ptr<Ring>* out) {
  if (!memfd.valid()) return Error(HR_INTERNAL, "the daemon's answer to OPEN came without a ring");
  struct stat info;
  if (fstat(memfd.get(), &info) != 0 || !S_ISREG(info.st_mode) ||
      static_cast<uint64_t>(info.st_size) != answer.memfd_bytes) {
    return Error(HR_INTERNAL,
                 "the ring that came with the daemon's answer to OPEN has a wrong size");
  }
  const int seals = fcntl(memfd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return Error(HR_INTERNAL, "the ring that came with the daemon's answer to OPEN is not sealed");
  }
  void* base =
      mmap(nullptr, answer.memfd_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd.get(), 0);
  if (base == MAP_FAILED) {
    return Error(HR_RESOURCE_EXHAUSTED, "mmap of a ring of " + std::to_string(answer.memfd_bytes) +
                                            " bytes: " + strerror(errno));
  }
  std::unique_ptr<Ring> ring(new Ring);
  ring->answer_ = answer;
  ring->process_ = CurrentProcess();
  ring->base_ = static_cast<uint8_t*>(base);
  ring->control_ = reinterpret_cast<hr_control*>(base);
  ring->slots_ = std::make_unique<Slot[]>(answer.num_slots);
  for (uint32_t i = 0; i < answer.num_slots; ++i) {
    ring->slots_[i].views = std::make_unique<ViewTensor[]>(answer.num_fields);
  }
  if (ring->control_->fixed.layout_version != HR_LAYOUT_VERSION) {
    return Error(HR_FAILED_PRECONDITION, "the daemon's ring has layout version " +
                                             std::to_string(ring->control_->fixed.layout_version) +
                                             ", this client's " +
                                             std::to_string(HR_LAYOUT_VERSION));
  }
  *out = std::move(ring);
  return {};
}

Ring::~Ring() {
  if (base_ != nullptr) munmap(base_, answer_.memfd_bytes);
}

Ring::Found Ring::Find(uint32_t ticket, uint32_t* slot) {
  // Slots are filled in ring order, so the batch is nearly always where it is looked for first.
  if (control_->slots[expected_slot_].ready.load(std::memory_order_seq_cst) == ticket &&
      slots_[expected_slot_].leased_ticket.load(std::memory_order_relaxed) == 0) {
    *slot = expected_slot_;
    return Found::kReady;
  }
  bool later = false;
  // A second round after a later ticket was seen: tickets become ready in order, so the wanted one
  // is visible by now.
  for (int round = 0; round < 2; ++round) {
    for (uint32_t i = 0; i < answer_.num_slots; ++i) {
      const uint32_t ready = control_->slots[i].ready.load(std::memory_order_seq_cst);
      SeeWhatTheGpuReleased(i);
      const uint32_t leased = slots_[i].leased_ticket.load(std::memory_order_relaxed);
      if (leased != 0) {
        if (ready != leased) return Found::kBroken;
        continue;
      }
      if (ready == ticket) {
        *slot = i;
        return Found::kReady;
      }
      if (ready > ticket) {
        later = true;
      } else if (ready != 0 &&
                 control_->slots[i].released.load(std::memory_order_relaxed) != ready) {
        Release(i, ready);  // of a sequence before a seek
      }
    }
    if (!later) return Found::kNotYet;
  }
  return Found::kBroken;
}

Ring::Line Ring::ReadLine(uint32_t slot) const {
  const auto& line = control_->slots[slot];
  return {line.length,   line.status,     line.bad_samples,  line.counted_bad, line.epoch,
          line.position, line.next_epoch, line.next_position};
}

std::string Ring::ReadReport(uint32_t slot) const {
  const char* report = reinterpret_cast<const char*>(data(slot) + answer_.error_offset);
  return std::string(report, strnlen(report, HR_ERROR_BYTES));
}

uint64_t Ring::ReadCountedBad(uint32_t slot, uint32_t i) const {
  uint64_t sample;
  memcpy(&sample, data(slot) + answer_.error_offset + sizeof(sample) * i, sizeof(sample));
  return sample;
}

Status Ring::HandOut(uint32_t slot, uint32_t ticket, uint32_t length, uint32_t max_fields,
                     hr_batch* batch) {
  const uint32_t num_fields = std::min(max_fields, answer_.num_fields);
  if (!lease_all_ && answer_.device_slot_bytes > 0 && answer_.device_field < num_fields)
    return Error(HR_FAILED_PRECONDITION, "batches in GPU memory need hr_session_lease_all");
  // Leasing the last slot without a living tensor would leave the daemon nothing to fill while the
  // trainer waits for it.
  const bool is_last = num_leased_ + 1 >= answer_.num_slots;
  const bool copy_all = length == 0 || (is_last && !lease_all_);
  Slot& state = slots_[slot];
  uint32_t num_views = 0;
  for (uint32_t i = 0; i < num_fields; ++i) {
    const hr_field_layout& field = answer_.fields[i];
    uint8_t* from = data(slot) + field.offset;
    if (IsOnDevice(i))  // no address of this process
      from = reinterpret_cast<uint8_t*>(slot * answer_.device_slot_bytes + field.offset);
    if (!copy_all && (lease_all_ || field.bytes >= HR_SMALL_FIELD_BYTES)) {
      MakeView(field, length, from, process_, &state.living, &state.views[i]);
      batch->fields[i] = &state.views[i].managed;
      ++num_views;
      continue;
    }
    batch->fields[i] = MakeCopy(field, length, from);
    if (batch->fields[i] == nullptr) {
      for (uint32_t k = 0; k < i; ++k) {
        if (batch->fields[k] != &state.views[k].managed)
          batch->fields[k]->deleter(batch->fields[k]);
      }
      memset(batch->fields, 0, sizeof batch->fields);
      return Error(HR_RESOURCE_EXHAUSTED,
                   "no memory for a copy of a field of " + std::to_string(field.bytes) + " bytes");
    }
  }
  batch->num_fields = num_fields;
  batch->length = length;
  batch->leased = num_views > 0 ? 1 : 0;
  expected_slot_ = slot + 1 == answer_.num_slots ? 0 : slot + 1;
  PrefetchExpected();
  if (num_views > 0) {
    ++num_leased_;
    state.left_to_gpu = false;
    state.leased_ticket.store(ticket, std::memory_order_relaxed);
    state.living.store(num_views, std::memory_order_relaxed);
  } else {
    Release(slot, ticket);
  }
  return {};
}

// Into this core's caches, what the next HandOut is going to need.
void Ring::PrefetchExpected() const {
  const uint32_t slot = expected_slot_;
  __builtin_prefetch(&control_->slots[slot]);
  for (uint32_t i = 0; i < answer_.num_fields; ++i) {
    const hr_field_layout& field = answer_.fields[i];
    if (lease_all_ || field.bytes >= HR_SMALL_FIELD_BYTES) {
      __builtin_prefetch(&slots_[slot].views[i], 1);
      __builtin_prefetch(&slots_[slot].views[i].strides, 1);
    } else {
      __builtin_prefetch(data(slot) + field.offset);
    }
  }
}

void Ring::Release(uint32_t slot, uint32_t ticket) {
  control_->slots[slot].released.store(ticket, std::memory_order_seq_cst);
  given_back_ = true;
}

void Ring::ReleaseDropped() {
  num_leased_ = 0;
  for (uint32_t i = 0; i < answer_.num_slots; ++i) {
    Slot& slot = slots_[i];
    const uint32_t ticket = slot.leased_ticket.load(std::memory_order_relaxed);
    if (ticket == 0) continue;
    if (slot.left_to_gpu) {
      SeeWhatTheGpuReleased(i);
      num_leased_ += slot.left_to_gpu;
      continue;
    }
    if (slot.living.load(std::memory_order_acquire) != 0) {
      ++num_leased_;
      continue;
    }
    slot.leased_ticket.store(0, std::memory_order_relaxed);
    Release(i, ticket);
  }
}

void Ring::SeeWhatTheGpuReleased(uint32_t i) {
  Slot& slot = slots_[i];
  if (!slot.left_to_gpu) return;
  const uint32_t released = control_->slots[i].released.load(std::memory_order_acquire);
  if (released != slot.leased_ticket.load(std::memory_order_relaxed)) return;
  slot.left_to_gpu = false;
  slot.leased_ticket.store(0, std::memory_order_relaxed);
  given_back_ = true;
}

void Ring::WakeDaemon(Connection* connection, bool before_waiting) {
  if (!given_back_ && !before_waiting) return;
  given_back_ = false;
  // Against the daemon's "set waiting, look once more": all four accesses are in one total order
  // (seq_cst), so one of the two sides sees the other's store.
  const uint32_t waiting = control_->daemon.waiting.load(std::memory_order_seq_cst);
  if (waiting == HR_WAITING || (before_waiting && waiting != 0)) connection->RingDoorbell();
}

void Ring::SetWaiting(bool waiting) {
  control_->client.waiting.store(waiting ? HR_WAITING : 0, std::memory_order_seq_cst);
}

std::string Ring::stop_reason() const {
  const char* reason = control_->daemon.reason;
  return std::string(reason, strnlen(reason, sizeof control_->daemon.reason));
}

uint32_t Ring::CountLeased() const {
  uint32_t count = 0;
  for (uint32_t i = 0; i < answer_.num_slots; ++i) {
    if (slots_[i].living.load(std::memory_order_acquire) != 0) ++count;
  }
  return count;
}

uint32_t Ring::CountReady(uint32_t from_ticket) const {
  uint32_t count = 0;
  for (uint32_t i = 0; i < answer_.num_slots; ++i) {
    if (control_->slots[i].ready.load(std::memory_order_relaxed) >= from_ticket) ++count;
  }
  return count;
}

void Retire(std::unique_ptr<Ring> ring) {
  if (ring == nullptr || !ring->IsInUse()) return;
  const ForksHeldOff held;
  if (g_retired == nullptr) g_retired = new std::vector<std::unique_ptr<Ring>>;
  g_retired->push_back(std::move(ring));
  g_num_retired.store(g_retired->size(), std::memory_order_release);
}

void ReapRetired() {
  if (g_num_retired.load(std::memory_order_acquire) == 0) return;
  std::vector<std::unique_ptr<Ring>> done;  // unmapped after the lock: a munmap takes milliseconds
  const ForksHeldOff held;
  for (auto& ring : *g_retired) {
    if (ring->process() != CurrentProcess()) {
      (void)ring.release();  // the parent's: a forked child leaves its batches as they are
    } else if (!ring->IsInUse()) {
      done.push_back(std::move(ring));
    }
  }
  std::erase(*g_retired, nullptr);
  g_num_retired.store(g_retired->size(), std::memory_order_release);
}

}  // namespace headrace::client
