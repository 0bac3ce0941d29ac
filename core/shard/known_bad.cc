#include "core/shard/known_bad.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/file.h"

namespace headrace {
namespace {

constexpr size_t kMaxReasonBytes = 500;

// It may be anything that somebody put there: a link, a pipe, a folder, another name of a file elsewhere.
bool IsPlainFile(int fd, struct stat* info) {
  return ::fstat(fd, info) == 0 && S_ISREG(info->st_mode) && info->st_nlink == 1;
}

std::string Checksum(const std::string& text) {
  return absl::StrCat(absl::Hex(XXH3_64bits(text.data(), text.size()), absl::kZeroPad16));
}

// Whether it would come back as it was, and steers no terminal.
bool CanBeKept(const std::string& reason) {
  return reason.size() <= kMaxReasonBytes && std::none_of(reason.begin(), reason.end(), [](char c) {
    return (c >= 0 && c < ' ') || c == 0x7F;
  });
}

}  // namespace

std::string DefaultStateDir() {
  const auto variable = [](const char* name, const char* below) {
    const char* value = std::getenv(name);
    return value != nullptr && value[0] == '/' ? absl::StrCat(value, below) : std::string();
  };
  std::string dir = variable("STATE_DIRECTORY", "");
  dir = dir.substr(0, dir.find(':'));  // systemd's list
  if (dir.empty()) dir = variable("XDG_STATE_HOME", "/headrace");
  if (dir.empty()) dir = variable("HOME", "/.local/state/headrace");
  return dir;
}

KnownBad::KnownBad(std::shared_ptr<const Dataset> dataset, const std::string& state_dir)
    : dataset_(std::move(dataset)), state_dir_(state_dir) {
  AddPlace(dataset_->dir(), kFileName);
  if (!state_dir_.empty()) AddPlace(state_dir_, dataset_->hash() + ".txt");
}

void KnownBad::AddPlace(const std::string& dir, const std::string& name) {
  Place& place = places_.emplace_back();
  place.name = name;
  place.dir = UniqueFd(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (place.dir.valid()) Load(&place, absl::StrCat(dir, "/", name));
}

void KnownBad::Load(Place* place, const std::string& path) {
  const UniqueFd fd(::openat(place->dir.get(), place->name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid()) {
    if (errno != ENOENT) problem_ = std::string(ErrnoStatus(errno, path).message());
    return;
  }
  struct stat info;
  if (!IsPlainFile(fd.get(), &info)) {
    problem_ = path + " is not a file of its own";
    return;
  }
  const auto bytes = static_cast<uint64_t>(info.st_size);
  place->waste = bytes > kMaxFileBytes;
  std::string text(place->waste ? 0 : bytes, '\0');
  if (const absl::Status status = ReadAt(fd.get(), text.data(), text.size(), 0, path); !status.ok()) {
    problem_ = std::string(status.message());
    return;
  }
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (!Parse(std::string(line))) place->waste = true;
  }
}

int64_t KnownBad::ShardTime(uint64_t sample) const {
  struct stat info = {};
  (void)::fstat(dataset_->shard_fd(dataset_->Locate(sample).first), &info);
  return int64_t{1'000'000'000} * info.st_ctim.tv_sec + info.st_ctim.tv_nsec;
}

std::string KnownBad::Line(uint64_t sample, const Entry& entry) const {
  const std::string text =
      absl::StrCat(dataset_->hash(), " ", entry.time_ns, " ", sample, " ", entry.rows, " ", entry.reason);
  // A line end in front too: what lies there may have been cut off.
  return absl::StrCat("\n", Checksum(text), " ", text, "\n");
}

bool KnownBad::Parse(const std::string& line) {
  const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(' ', 5));
  uint64_t sample;
  Entry entry;
  if (parts.size() != 6 || !absl::SimpleAtoi(parts[3], &sample) || !absl::SimpleAtoi(parts[4], &entry.rows)) return false;
  if (sample >= dataset_->size()) return false;
  entry.reason = parts[5];
  entry.time_ns = ShardTime(sample);
  // Made anew it must be the same: checksum, hash, time of the shard, spelling.
  if (!CanBeKept(entry.reason) || Line(sample, entry) != absl::StrCat("\n", line, "\n")) return false;
  Merge(sample, std::move(entry));
  return true;
}

// False: that much was known, or there is no room.
bool KnownBad::Merge(uint64_t sample, Entry entry) {
  const auto found = entries_.find(sample);
  if (found == entries_.end() ? entries_.size() >= kMaxSamples
                              : found->second.time_ns == entry.time_ns && found->second.rows <= entry.rows) {
    return false;
  }
  entries_[sample] = std::move(entry);
  is_empty_.store(false, std::memory_order_release);
  return true;
}

std::optional<std::string> KnownBad::Find(uint64_t sample, uint32_t rows) const {
  if (is_empty_.load(std::memory_order_acquire)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(sample);
  if (found == entries_.end() || found->second.rows > rows || found->second.time_ns != ShardTime(sample)) {
    return std::nullopt;
  }
  return found->second.reason;
}

std::map<uint64_t, KnownBad::Entry> KnownBad::entries() const {
  const std::lock_guard lock(mutex_);
  return entries_;
}

void KnownBad::Add(uint64_t sample, uint32_t rows, const std::string& reason) {
  if (!CanBeKept(reason)) return;
  const std::lock_guard lock(mutex_);
  const Entry entry{rows, reason, ShardTime(sample)};
  if (!Merge(sample, entry)) return;
  const std::string line = Line(sample, entry);
  if (Append(&places_[0], line) || places_.size() == 1) return;
  if (!places_[1].dir.valid()) {
    std::error_code error;
    std::filesystem::create_directories(state_dir_, error);
    places_[1].dir = UniqueFd(::open(state_dir_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  Append(&places_[1], line);
}

bool KnownBad::Append(Place* place, const std::string& line) {
  if (!place->dir.valid()) return false;
  // One write behind the end: daemons that share the file do not mix their lines.
  const UniqueFd fd(::openat(place->dir.get(), place->name.c_str(),
                             O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644));
  struct stat info;
  if (!fd.valid() || !IsPlainFile(fd.get(), &info)) return false;
  std::string text = line;
  const auto is_full = [&] { return static_cast<uint64_t>(info.st_size) + text.size() > kMaxFileBytes; };
  if (is_full() && place->waste) {  // killed in here, or a line of another daemon's: what is lost is a decoding, no more
    Load(place, place->name);
    text.clear();
    for (const auto& [sample, entry] : entries_) text += Line(sample, entry);
    if (::ftruncate(fd.get(), 0) != 0) return false;
    info.st_size = 0;
    place->waste = false;
  }
  if (is_full()) return true;  // there is no better place
  return WriteAll(fd.get(), text.data(), text.size(), place->name).ok();
}

}  // namespace headrace
