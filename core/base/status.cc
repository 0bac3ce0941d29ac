#include "core/base/status.h"

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace headrace {

absl::Status ErrnoStatus(int error, const std::string& what) {
  const absl::Status status = absl::ErrnoToStatus(error, what);
  if (error != EMFILE) return status;
  return absl::Status(status.code(), absl::StrCat(status.message(), " (raise the limit: ulimit -n, LimitNOFILE)"));
}

absl::Status Annotate(const absl::Status& status, const std::string& prefix) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(prefix, ": ", status.message()));
}

}  // namespace headrace
