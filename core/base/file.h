// Whole reads and writes on descriptors. They block; EINTR is retried.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/base/status.h"
#include "core/base/unique_fd.h"

namespace headrace {

// Opens read-only with O_CLOEXEC; the message names `path`. FAILED_PRECONDITION for a pipe, which would wait for its writer.
absl::StatusOr<UniqueFd> OpenForReading(const std::string& path);

// Fills [data, data + size) from `offset`. OUT_OF_RANGE if the file ends before; `what` names the file in the message.
absl::Status ReadAt(int fd, void* data, size_t size, uint64_t offset, const std::string& what);

absl::Status WriteAll(int fd, const void* data, size_t size, const std::string& what);

// The whole file; RESOURCE_EXHAUSTED above max_bytes.
absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t max_bytes);

absl::StatusOr<uint64_t> FileSize(int fd, const std::string& what);

}  // namespace headrace
