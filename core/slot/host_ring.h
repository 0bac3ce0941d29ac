// The slots of one session: one sealed memfd, a control page and n slots.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/base/status.h"
#include "core/base/unique_fd.h"
#include "core/slot/slot_memory.h"
#include "core/slot/slot_layout.h"

namespace headrace {

// Created by the daemon, mapped by it and by its one client. Destroying it leaves the client's mapping as it is: a client
// that lives may still hold tensors of it.
class HostRing {
 public:
  // memfd, ftruncate, F_SEAL_SHRINK|GROW|SEAL. Takes address space only; Populate takes memory, of
  // `numa_node` if it can (−1: of any).
  static absl::StatusOr<std::unique_ptr<HostRing>> Create(int num_slots, uint64_t slot_bytes,
                                                          int numa_node = -1);
  ~HostRing();

  // Allocates and touches one slot's memory (fallocate, MADV_POPULATE_WRITE). Blocks 0.5 ms per MB; RESOURCE_EXHAUSTED
  // when memory is refused. Idempotent.
  absl::Status Populate(int slot);

  // For a client that is dead: gives the memory back at once, even if a forked child still maps it (the memfd is punched
  // empty). Nobody may write into the ring any more.
  void Discard();

  // The part of the slots that lies in GPU memory. Lives as long as this.
  void Attach(std::unique_ptr<DeviceRing> device) { device_ = std::move(device); }
  DeviceRing* device() const { return device_.get(); }
  SlotMemory memory(int i) const { return SlotMemory(slot(i), device_.get(), i); }

  int fd() const { return fd_.get(); }
  int num_slots() const { return num_slots_; }
  uint64_t slot_bytes() const { return slot_bytes_; }
  uint64_t total_bytes() const { return HR_CONTROL_BYTES + static_cast<uint64_t>(num_slots_) * slot_bytes_; }
  hr_control* control() const { return reinterpret_cast<hr_control*>(base_); }
  // Memory taken so far: the control page and the populated slots.
  uint64_t populated_bytes() const { return HR_CONTROL_BYTES + std::popcount(populated_) * slot_bytes_; }
  uint8_t* slot(int i) const { return base_ + HR_CONTROL_BYTES + static_cast<uint64_t>(i) * slot_bytes_; }

 private:
  HostRing() = default;
  UniqueFd fd_;
  int num_slots_ = 0;
  uint64_t slot_bytes_ = 0;
  uint64_t populated_ = 0;  // a bit per slot
  uint8_t* base_ = nullptr;
  std::unique_ptr<DeviceRing> device_;
};

}  // namespace headrace
