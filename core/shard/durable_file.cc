#include "core/shard/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"

namespace headrace {

absl::Status WriteFileDurably(const std::string& path, absl::Span<const std::string* const> parts, int copied_fd,
                              uint64_t copied_bytes) {
  const std::string temporary = absl::StrCat(path, ".tmp");
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("cannot create ", temporary));
  for (const std::string* part : parts) {
    HEADRACE_RETURN_IF_ERROR(WriteAll(fd.get(), part->data(), part->size(), temporary));
  }
  std::string block;
  for (uint64_t done = 0; done < copied_bytes; done += block.size()) {
    block.resize(std::min<uint64_t>(copied_bytes - done, uint64_t{1} << 20));
    HEADRACE_RETURN_IF_ERROR(ReadAt(copied_fd, block.data(), block.size(), done, temporary));
    HEADRACE_RETURN_IF_ERROR(WriteAll(fd.get(), block.data(), block.size(), temporary));
  }
  if (::fdatasync(fd.get()) != 0) return ErrnoStatus(errno, absl::StrCat("cannot write ", temporary));
  return RenameDurably(temporary, path);
}

absl::Status SyncFile(const std::string& path) {
  HEADRACE_ASSIGN_OR_RETURN(UniqueFd fd, OpenForReading(path));
  if (::fdatasync(fd.get()) != 0) return ErrnoStatus(errno, absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

absl::Status RenameDurably(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot rename ", from, " to ", to));
  }
  const size_t slash = to.rfind('/');
  const std::string dir = slash == std::string::npos ? "." : slash == 0 ? "/" : to.substr(0, slash);
  UniqueFd fd(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot sync a directory (EINVAL); they give what they have.
  if (!fd.valid() || (::fsync(fd.get()) != 0 && errno != EINVAL)) {
    return ErrnoStatus(errno, absl::StrCat("cannot write ", dir));
  }
  return absl::OkStatus();
}

}  // namespace headrace
