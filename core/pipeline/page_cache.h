// What the kernel's page cache holds of a shard, and what it shall hold soon. No call waits for the disk.
#pragma once

#include <cstdint>

#include "core/shard/dataset.h"

namespace headrace {

// Whether the last byte of a value is in the page cache (preadv2 with RWF_NOWAIT, 0.4 µs). A file system that cannot say is taken for
// cold.
bool IsCached(const Dataset& dataset, const ValueLocation& location);

// posix_fadvise(WILLNEED) of a range of any length. The kernel cuts one call to the device's read-ahead size, so that is done
// in pieces of 128 KiB, the smallest default.
void PrefetchRange(int fd, uint64_t offset, uint64_t bytes);

// Bytes of memory that this process may hope for: the machine's, or its control group's limit.
uint64_t UsableMemoryBytes();

}  // namespace headrace
