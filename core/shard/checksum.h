// Checksums of whole files.
#pragma once

#include <atomic>
#include <string>

#include "core/shard/format.h"

namespace headrace {

// XXH3-128 of the file as it is now, read in blocks of 1 MiB; several GB/s from the page cache. Adds what it has read
// to `bytes_done` (may be null) as it goes on.
absl::StatusOr<Checksum128> ChecksumFile(const std::string& path, std::atomic<uint64_t>* bytes_done = nullptr);

}  // namespace headrace
