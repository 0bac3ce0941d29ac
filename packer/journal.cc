#include "packer/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"

namespace headrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kHashDigits = 16;

std::string HashOf(const std::string& json) {
  char digits[kHashDigits + 1];
  std::snprintf(digits, sizeof digits, "%016llx",
                static_cast<unsigned long long>(XXH3_64bits(json.data(), json.size())));
  return digits;
}

std::string EntryToJson(const JournalEntry& entry) {
  return Json{{"samples", entry.shard.samples},
              {"lmdb_bytes", entry.shard.lmdb_bytes},
              {"xxh3_128", ToHex(entry.shard.lmdb_checksum)},
              {"items", entry.items},
              {"items_hash", entry.items_hash},
              {"report_bytes", entry.report_bytes},
              {"rejected", entry.rejected},
              {"skipped", entry.skipped}}
      .dump();
}

absl::StatusOr<JournalEntry> EntryFromJson(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    JournalEntry entry;
    entry.shard.samples = json.at("samples");
    entry.shard.lmdb_bytes = json.at("lmdb_bytes");
    HEADRACE_ASSIGN_OR_RETURN(entry.shard.lmdb_checksum, ChecksumFromHex(json.at("xxh3_128")));
    entry.items = json.at("items");
    entry.items_hash = json.at("items_hash");
    entry.report_bytes = json.at("report_bytes");
    entry.rejected = json.at("rejected");
    entry.skipped = json.at("skipped");
    return entry;
  } catch (const Json::exception& error) {
    return absl::DataLossError(error.what());
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(const std::string& dir) {
  std::unique_ptr<Journal> journal(new Journal());
  journal->path_ = absl::StrCat(dir, "/", kJournalName);
  journal->fd_ = UniqueFd(::open(journal->path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!journal->fd_.valid()) return ErrnoStatus(errno, absl::StrCat("cannot create ", journal->path_));
  if (::flock(journal->fd_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      return absl::FailedPreconditionError(absl::StrCat("another `headrace pack` is writing ", dir));
    }
    return ErrnoStatus(errno, absl::StrCat("cannot lock ", journal->path_));
  }
  HEADRACE_RETURN_IF_ERROR(journal->Load());
  return journal;
}

absl::Status Journal::Load() {
  HEADRACE_ASSIGN_OR_RETURN(std::string text, ReadFile(path_, uint64_t{256} << 20));
  uint64_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = text.substr(begin, end - begin);
    if (line.size() < kHashDigits + 1) break;
    const std::string json = line.substr(0, line.size() - kHashDigits - 1);
    if (line.substr(json.size()) != absl::StrCat(" ", HashOf(json))) break;
    if (line_ends_.empty()) {
      header_ = json;
    } else {
      const absl::StatusOr<JournalEntry> entry = EntryFromJson(json);
      if (!entry.ok()) break;
      entries_.push_back(*entry);
    }
    line_ends_.push_back(end + 1);
  }
  return begin == text.size() ? absl::OkStatus() : CutTo(begin);
}

absl::Status Journal::Begin(const std::string& header_json) {
  entries_.clear();
  line_ends_.clear();
  header_ = header_json;
  if (::lseek(fd_.get(), 0, SEEK_SET) < 0) return ErrnoStatus(errno, absl::StrCat("cannot write ", path_));
  HEADRACE_RETURN_IF_ERROR(AppendLine(header_json));  // over what was there, which goes only then
  return CutTo(line_ends_.back());
}

absl::Status Journal::KeepEntries(size_t n) {
  entries_.resize(n);
  line_ends_.resize(n + 1);
  return CutTo(line_ends_.back());
}

absl::Status Journal::Append(const JournalEntry& entry) {
  HEADRACE_RETURN_IF_ERROR(AppendLine(EntryToJson(entry)));
  entries_.push_back(entry);
  return absl::OkStatus();
}

absl::Status Journal::AppendLine(const std::string& json) {
  const std::string line = absl::StrCat(json, " ", HashOf(json), "\n");
  HEADRACE_RETURN_IF_ERROR(WriteAll(fd_.get(), line.data(), line.size(), path_));
  if (::fdatasync(fd_.get()) != 0) return ErrnoStatus(errno, absl::StrCat("cannot write ", path_));
  line_ends_.push_back((line_ends_.empty() ? 0 : line_ends_.back()) + line.size());
  return absl::OkStatus();
}

absl::Status Journal::CutTo(uint64_t bytes) {
  if (::ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0 ||
      ::lseek(fd_.get(), static_cast<off_t>(bytes), SEEK_SET) < 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot write ", path_));
  }
  return absl::OkStatus();
}

absl::Status Journal::Remove() {
  if (::unlink(path_.c_str()) != 0) return ErrnoStatus(errno, absl::StrCat("cannot remove ", path_));
  return absl::OkStatus();
}

}  // namespace headrace
