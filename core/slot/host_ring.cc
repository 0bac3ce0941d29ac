#include "core/slot/host_ring.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "absl/strings/str_cat.h"
#include "core/base/numa.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

namespace headrace {
namespace {

constexpr uint64_t kPageBytes = 4096;
static_assert(HR_MAX_SLOTS <= 64);  // HostRing::populated_

absl::Status MemoryRefused(int error, uint64_t bytes) {
  const absl::Status status = ErrnoStatus(error, "");
  return absl::ResourceExhaustedError(
      absl::StrCat("no memory for ", bytes, " bytes of a session's ring", std::string(status.message())));
}

absl::Status Allocate(int fd, uint64_t offset, uint64_t bytes) {
  int failed;
  do failed = ::fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0 ? errno : 0;
  while (failed == EINTR);
  return failed == 0 ? absl::OkStatus() : MemoryRefused(failed, bytes);
}

// Maps every page of the range, so that the first fill takes no page faults.
absl::Status Touch(uint8_t* begin, uint64_t bytes) {
  int failed;
  do failed = ::madvise(begin, bytes, MADV_POPULATE_WRITE) != 0 ? errno : 0;
  while (failed == EINTR);
  if (failed == EINVAL) {  // an older kernel: the same by hand, with a write that changes nothing
    for (uint64_t at = 0; at < bytes; at += kPageBytes) __atomic_fetch_or(begin + at, 0, __ATOMIC_RELAXED);
    failed = 0;
  }
  return failed == 0 ? absl::OkStatus() : MemoryRefused(failed, bytes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<HostRing>> HostRing::Create(int num_slots, uint64_t slot_bytes,
                                                           int numa_node) {
  std::unique_ptr<HostRing> ring(new HostRing);
  ring->num_slots_ = num_slots;
  ring->slot_bytes_ = slot_bytes;
  ring->fd_ = UniqueFd(::memfd_create("headrace-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!ring->fd_.valid()) return ErrnoStatus(errno, "memfd_create for a session's ring");
  const uint64_t bytes = ring->total_bytes();
  if (::ftruncate(ring->fd(), static_cast<off_t>(bytes)) != 0) {
    return MemoryRefused(errno, bytes);
  }
  if (::fcntl(ring->fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ErrnoStatus(errno, "sealing a session's ring");
  }
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd(), 0);
  if (base == MAP_FAILED) return MemoryRefused(errno, bytes);
  ring->base_ = static_cast<uint8_t*>(base);
  (void)::madvise(base, bytes, MADV_DONTDUMP);  // batches do not belong into a core file
  PreferNode(base, bytes, numa_node);
  HEADRACE_RETURN_IF_ERROR(Allocate(ring->fd(), 0, HR_CONTROL_BYTES));
  HEADRACE_RETURN_IF_ERROR(Touch(ring->base_, HR_CONTROL_BYTES));
  hr_control* control = new (base) hr_control{};
  control->fixed.magic = HR_RING_MAGIC;
  control->fixed.layout_version = HR_LAYOUT_VERSION;
  control->fixed.num_slots = static_cast<uint32_t>(num_slots);
  return ring;
}

HostRing::~HostRing() {
  if (base_ != nullptr) ::munmap(base_, total_bytes());
}

absl::Status HostRing::Populate(int slot_number) {
  const auto offset = static_cast<uint64_t>(slot(slot_number) - base_);
  HEADRACE_RETURN_IF_ERROR(Allocate(fd(), offset, slot_bytes_));
  HEADRACE_RETURN_IF_ERROR(Touch(slot(slot_number), slot_bytes_));
  populated_ |= uint64_t{1} << slot_number;
  return absl::OkStatus();
}

void HostRing::Discard() {
  // Cannot fail for a memfd that is not sealed against writing; if it did, the memory would only go later.
  (void)::fallocate(fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(total_bytes()));
}

}  // namespace headrace
