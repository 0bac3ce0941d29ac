#include "packer/report.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "packer/csv.h"

namespace headrace {
namespace {

constexpr char kHeader[] = "file,verdict,reason\n";
constexpr size_t kBufferBytes = size_t{64} << 10;

}  // namespace

std::string VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPacked: return "packed";
    case Verdict::kDamaged: return "damaged";
    case Verdict::kTranscoded: return "transcoded";
    case Verdict::kNoEntries: return "no entries";
    case Verdict::kRejected: return "rejected";
    case Verdict::kSkipped: return "skipped";
    case Verdict::kWarning: return "warning";
  }
  return "unknown";
}

absl::Status Report::Open(const std::string& path, uint64_t keep_bytes) {
  path_ = path;
  fd_ = UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (!fd_.valid()) return ErrnoStatus(errno, absl::StrCat("cannot create ", path));
  if (::ftruncate(fd_.get(), static_cast<off_t>(keep_bytes)) != 0 || ::lseek(fd_.get(), 0, SEEK_END) < 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot write ", path));
  }
  buffer_ = keep_bytes == 0 ? kHeader : "";
  size_ = keep_bytes + buffer_.size();
  return absl::OkStatus();
}

absl::Status Report::Add(const std::string& file, Verdict verdict, const std::string& reason) {
  const std::string line =
      absl::StrCat(CsvQuote(file), ",", VerdictName(verdict), ",", CsvQuote(reason), "\n");
  buffer_ += line;
  size_ += line.size();
  return buffer_.size() < kBufferBytes ? absl::OkStatus() : Flush(false);
}

absl::Status Report::Flush(bool sync) {
  HEADRACE_RETURN_IF_ERROR(WriteAll(fd_.get(), buffer_.data(), buffer_.size(), path_));
  buffer_.clear();
  if (sync && ::fdatasync(fd_.get()) != 0) return ErrnoStatus(errno, absl::StrCat("cannot write ", path_));
  return absl::OkStatus();
}

}  // namespace headrace
