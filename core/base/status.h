// Errors are absl::Status / StatusOr. Messages say what failed and which ("shard 12, sample 8041: …").
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace headrace {

// A status for a failed system call: the canonical code that fits `error` (ENOENT → NOT_FOUND, ENOSPC →
// RESOURCE_EXHAUSTED, EACCES → PERMISSION_DENIED, …) and the message "<what>: <strerror(error)>".
absl::Status ErrnoStatus(int error, const std::string& what);

// `status` with "<prefix>: " before its message; OK stays OK.
absl::Status Annotate(const absl::Status& status, const std::string& prefix);

}  // namespace headrace

#define HEADRACE_RETURN_IF_ERROR(expression)                 \
  do {                                                       \
    if (absl::Status headrace_status = (expression); !headrace_status.ok()) return headrace_status; \
  } while (false)

#define HEADRACE_CONCAT_(a, b) a##b
#define HEADRACE_CONCAT(a, b) HEADRACE_CONCAT_(a, b)
// HEADRACE_ASSIGN_OR_RETURN(auto x, MakeX());
#define HEADRACE_ASSIGN_OR_RETURN(target, expression) \
  HEADRACE_ASSIGN_OR_RETURN_(HEADRACE_CONCAT(headrace_or_, __LINE__), target, expression)
#define HEADRACE_ASSIGN_OR_RETURN_(holder, target, expression) \
  auto holder = (expression);                                  \
  if (!holder.ok()) return holder.status();                    \
  target = *std::move(holder)
