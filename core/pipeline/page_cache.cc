#include "core/pipeline/page_cache.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

#include "core/pipeline/memory_budget.h"

namespace headrace {
namespace {

constexpr uint64_t kPieceBytes = 128 << 10;

}  // namespace

bool IsCached(const Dataset& dataset, const ValueLocation& location) {
  if (location.length == 0) return true;
  char byte;
  const iovec vector = {&byte, 1};
  const auto offset = static_cast<off_t>(location.offset + location.length - 1);
  return ::preadv2(dataset.shard_fd(location.shard), &vector, 1, offset, RWF_NOWAIT) == 1;
}

void PrefetchRange(int fd, uint64_t offset, uint64_t bytes) {
  while (bytes > 0) {
    const uint64_t piece = std::min(bytes, kPieceBytes);
    (void)::posix_fadvise(fd, static_cast<off_t>(offset), static_cast<off_t>(piece), POSIX_FADV_WILLNEED);
    offset += piece;
    bytes -= piece;
  }
}

uint64_t UsableMemoryBytes() {
  const uint64_t machine = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto group = ReadCgroupMemory("/proc", "/sys/fs/cgroup");
  return group ? std::min(machine, group->limit_bytes) : machine;
}

}  // namespace headrace
