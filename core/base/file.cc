#include "core/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace headrace {

absl::StatusOr<UniqueFd> OpenForReading(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat("cannot open ", path, ": it is a pipe"));
  }
  int fd;
  do fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  while (fd < 0 && errno == EINTR);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("cannot open ", path));
  return UniqueFd(fd);
}

absl::Status ReadAt(int fd, void* data, size_t size, uint64_t offset, const std::string& what) {
  char* out = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t n = ::pread(fd, out, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("cannot read ", what));
    if (n == 0)
      return absl::OutOfRangeError(absl::StrCat(what, " ends before offset ", offset + size));
    out += n;
    offset += static_cast<uint64_t>(n);
    size -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::Status WriteAll(int fd, const void* data, size_t size, const std::string& what) {
  const char* in = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = ::write(fd, in, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("cannot write ", what));
    in += n;
    size -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t max_bytes) {
  HEADRACE_ASSIGN_OR_RETURN(UniqueFd fd, OpenForReading(path));
  HEADRACE_ASSIGN_OR_RETURN(uint64_t size, FileSize(fd.get(), path));
  if (size > max_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, " has ", size, " bytes; at most ", max_bytes, " are read"));
  }
  std::string content(size, '\0');
  HEADRACE_RETURN_IF_ERROR(ReadAt(fd.get(), content.data(), size, 0, path));
  return content;
}

absl::StatusOr<uint64_t> FileSize(int fd, const std::string& what) {
  struct stat info;
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, absl::StrCat("cannot stat ", what));
  return static_cast<uint64_t>(info.st_size);
}

}  // namespace headrace
