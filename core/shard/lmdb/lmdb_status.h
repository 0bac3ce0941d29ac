// LMDB's codes as Status. Included only inside this folder.
#pragma once

#include <lmdb.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace headrace {

// `what` names the file and what was tried.
inline absl::Status LmdbStatus(int code, const std::string& what) {
  if (code == MDB_SUCCESS) return absl::OkStatus();
  if (code == ENOMEM) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, ": not enough address space; LMDB maps the whole file, so raise the limit (ulimit -v)"));
  }
  if (code > 0) return ErrnoStatus(code, what);  // LMDB passes errno on; its own codes are negative
  const std::string message = absl::StrCat(what, ": ", mdb_strerror(code));
  switch (code) {
    case MDB_NOTFOUND: return absl::NotFoundError(message);
    case MDB_MAP_FULL:
    case MDB_TXN_FULL: return absl::ResourceExhaustedError(message);
    case MDB_CORRUPTED:
    case MDB_INVALID:
    case MDB_PAGE_NOTFOUND:
    case MDB_VERSION_MISMATCH: return absl::DataLossError(message);
    default: return absl::InternalError(message);
  }
}

}  // namespace headrace
