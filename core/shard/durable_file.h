// Files that are complete or absent, also after a power cut. All calls block on the disk.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "core/base/status.h"

namespace headrace {

// Writes `parts` one after the other, and behind them the first `copied_bytes` bytes of `copied_fd`, to `path`.tmp, brings it
// to the disk, and renames it to `path`, replacing what was there. RESOURCE_EXHAUSTED naming the file when the disk is full.
absl::Status WriteFileDurably(const std::string& path, absl::Span<const std::string* const> parts, int copied_fd = -1,
                              uint64_t copied_bytes = 0);

// Brings an existing file's data to the disk.
absl::Status SyncFile(const std::string& path);

// rename(2), then brings the directory to the disk. Both lie in one directory.
absl::Status RenameDurably(const std::string& from, const std::string& to);

}  // namespace headrace
