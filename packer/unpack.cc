#include "packer/unpack.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/read/sample_reader.h"
#include "packer/destination.h"

namespace headrace {
namespace {

// A file is complete or absent under its own name. One name for all: there is one writer, and names may have any length.
constexpr char kTemporary[] = ".headrace-unpack.tmp";

class OutputFolder {
 public:
  explicit OutputFolder(const std::string& root) : root_(root) {}

  absl::Status Open() {
    HEADRACE_RETURN_IF_ERROR(MakeFolders(root_));
    root_fd_ = UniqueFd(::open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return root_fd_.valid() ? absl::OkStatus() : ErrnoStatus(errno, absl::StrCat("cannot open ", root_));
  }

  // `name` is a SafeName. ALREADY_EXISTS when the file is there with the same bytes.
  absl::Status Write(const std::string& name, absl::Span<const uint8_t> bytes) {
    const size_t slash = name.rfind('/');
    const std::string folder = slash == std::string::npos ? "" : name.substr(0, slash);
    const std::string base = slash == std::string::npos ? name : name.substr(slash + 1);
    HEADRACE_RETURN_IF_ERROR(EnterFolder(folder));
    const int dir = folder.empty() ? root_fd_.get() : folder_fd_.get();
    const std::string what = absl::StrCat("cannot write ", root_, "/", name);
    ::unlinkat(dir, kTemporary, 0);
    UniqueFd file(::openat(dir, kTemporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
    if (!file.valid()) return ErrnoStatus(errno, what);
    absl::Status status = WriteAll(file.get(), bytes.data(), bytes.size(), absl::StrCat(root_, "/", name));
    // A link and not a rename: it replaces nothing, on every file system.
    if (status.ok() && ::linkat(dir, kTemporary, dir, base.c_str(), 0) != 0) {
      status = errno == EEXIST ? Compare(dir, base, bytes, what) : ErrnoStatus(errno, what);
    }
    ::unlinkat(dir, kTemporary, 0);
    return status;
  }

 private:
  // Opens (and makes) folder by folder, so that no link on the way is followed.
  absl::Status EnterFolder(const std::string& folder) {
    if (folder.empty() || (folder == folder_ && folder_fd_.valid())) return absl::OkStatus();
    UniqueFd fd(::dup(root_fd_.get()));
    for (size_t begin = 0; begin <= folder.size();) {
      const size_t end = std::min(folder.find('/', begin), folder.size());
      const std::string part = folder.substr(begin, end - begin);
      if (::mkdirat(fd.get(), part.c_str(), 0755) != 0 && errno != EEXIST) {
        return ErrnoStatus(errno, absl::StrCat("cannot make folder ", root_, "/", folder.substr(0, end)));
      }
      UniqueFd next(::openat(fd.get(), part.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (!next.valid()) return ErrnoStatus(errno, absl::StrCat("cannot enter ", root_, "/", folder.substr(0, end)));
      fd = std::move(next);
      begin = end + 1;
    }
    folder_ = folder;
    folder_fd_ = std::move(fd);
    return absl::OkStatus();
  }

  static absl::Status Compare(int dir, const std::string& base, absl::Span<const uint8_t> bytes,
                              const std::string& what) {
    const absl::Status differs = absl::FailedPreconditionError(absl::StrCat(what, ": another file is there"));
    const UniqueFd file(::openat(dir, base.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat info;
    if (!file.valid() || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) ||
        static_cast<uint64_t>(info.st_size) != bytes.size()) {
      return differs;
    }
    std::vector<uint8_t> there(bytes.size());
    HEADRACE_RETURN_IF_ERROR(ReadAt(file.get(), there.data(), there.size(), 0, what));
    if (std::memcmp(there.data(), bytes.data(), bytes.size()) != 0) return differs;
    return absl::AlreadyExistsError(what);
  }

  const std::string root_;
  UniqueFd root_fd_;
  std::string folder_;  // the open one, below root_
  UniqueFd folder_fd_;
};

}  // namespace

std::string SafeName(const std::string& name) {
  std::string safe;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (!part.empty() && part != "." && part != "..") absl::StrAppend(&safe, safe.empty() ? "" : "/", part);
    begin = end + 1;
  }
  return safe;
}

absl::StatusOr<UnpackSummary> UnpackDataset(const std::string& dir, const std::string& out, UnpackProgress* progress,
                                            const std::function<void(const std::string&)>& failed,
                                            const std::function<void(const std::string&)>& transcoded) {
  HEADRACE_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> dataset, Dataset::Open(dir));
  const int image = dataset->FindField("image");
  if (image < 0 || dataset->FindField("name") < 0) {
    return absl::FailedPreconditionError(absl::StrCat(dir, " has no images with names"));
  }
  OutputFolder folder(out);
  HEADRACE_RETURN_IF_ERROR(folder.Open());
  progress->samples_total = dataset->size();
  UnpackSummary summary;
  SampleRow row;
  SampleReader reader;
  for (uint64_t sample = 0; sample < dataset->size(); ++sample) {
    if (progress->stop) return absl::CancelledError("stopped");
    const auto write = [&]() -> absl::Status {
      HEADRACE_RETURN_IF_ERROR(dataset->ReadRow(sample, &row));
      HEADRACE_ASSIGN_OR_RETURN(std::string name, ReadName(*dataset, row));
      const std::string safe = SafeName(name);
      if (safe.empty()) return absl::InvalidArgumentError(absl::StrCat("`", name, "` names no file"));
      summary.renamed += safe != name;
      if (row.image.transcoded) {
        ++summary.transcoded;
        transcoded(safe);
      }
      HEADRACE_ASSIGN_OR_RETURN(absl::Span<const uint8_t> bytes,
                                reader.Read(*dataset, row, image, Verify::kEvery, nullptr));
      HEADRACE_RETURN_IF_ERROR(folder.Write(safe, bytes));
      ++summary.files;
      summary.bytes += bytes.size();
      return absl::OkStatus();
    };
    const absl::Status status = write();
    if (absl::IsAlreadyExists(status)) {
      ++summary.present;
    } else if (absl::IsResourceExhausted(status)) {
      return status;
    } else if (!status.ok()) {
      ++summary.failed;
      failed(absl::StrCat("sample ", sample, ": ", status.message()));
    }
    ++progress->samples;
    progress->bytes = summary.bytes;
  }
  return summary;
}

}  // namespace headrace
