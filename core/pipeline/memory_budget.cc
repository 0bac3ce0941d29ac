#include "core/pipeline/memory_budget.h"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"

namespace headrace {
namespace {

constexpr uint64_t kMaxFileBytes = 1 << 20;

// These files say nothing about their size, so ReadFile does not fit.
std::optional<std::string> ReadSmallFile(const std::string& path) {
  absl::StatusOr<UniqueFd> fd = OpenForReading(path);
  if (!fd.ok()) return std::nullopt;
  std::string text;
  char buffer[4096];
  ssize_t n;
  while ((n = ::read(fd->get(), buffer, sizeof(buffer))) > 0 && text.size() < kMaxFileBytes) {
    text.append(buffer, static_cast<size_t>(n));
  }
  if (n < 0) return std::nullopt;
  return text;
}

// A number alone in a file; nothing for "max" and for version 1's "no limit" (near 2^63).
std::optional<uint64_t> ReadNumber(const std::string& path) {
  const std::optional<std::string> text = ReadSmallFile(path);
  uint64_t value;
  if (!text || std::sscanf(text->c_str(), "%" SCNu64, &value) != 1 || value >= uint64_t{1} << 62) return std::nullopt;
  return value;
}

// The value of a "key number" line.
uint64_t FindLine(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  std::string name;
  uint64_t value;
  while (lines >> name >> value) {
    if (name == key) return value;
  }
  return 0;
}

struct Names {
  const char *limit, *usage, *file_key, *shmem_key;
};
constexpr Names kVersion2 = {"memory.max", "memory.current", "file", "shmem"};
constexpr Names kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache", "total_shmem"};

// One group: what its limit leaves free.
std::optional<CgroupMemory> ReadGroup(const std::string& dir, const Names& names) {
  const std::optional<uint64_t> limit = ReadNumber(dir + "/" + names.limit);
  if (!limit) return std::nullopt;
  const uint64_t usage = ReadNumber(dir + "/" + names.usage).value_or(0);
  const std::string stat = ReadSmallFile(dir + "/memory.stat").value_or("");
  // Both counts include shared memory, which stays.
  const uint64_t cache = FindLine(stat, names.file_key), shared = FindLine(stat, names.shmem_key);
  const uint64_t reclaimable = cache > shared ? cache - shared : 0;
  const uint64_t kept = usage > reclaimable ? usage - reclaimable : 0;
  return CgroupMemory{*limit, *limit > kept ? *limit - kept : 0, dir + "/" + names.limit};
}

// From `path` (starting with '/') up to `root`, the tightest group.
void ReadGroups(const std::string& root, std::string path, const Names& names, std::optional<CgroupMemory>* tightest) {
  while (true) {
    if (const auto group = ReadGroup(path == "/" ? root : root + path, names);
        group && (!*tightest || group->free_bytes < (*tightest)->free_bytes)) {
      *tightest = group;
    }
    if (path.size() <= 1) return;
    path.erase(std::max<size_t>(path.rfind('/'), 1));
  }
}

std::string Megabytes(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f MB", static_cast<double>(bytes) / 1e6);
  return text;
}

}  // namespace

std::optional<CgroupMemory> ReadCgroupMemory(const std::string& proc, const std::string& sys) {
  std::optional<CgroupMemory> tightest;
  std::istringstream lines(ReadSmallFile(proc + "/self/cgroup").value_or(""));
  std::string line;
  while (std::getline(lines, line)) {  // "<id>:<controllers>:<path>"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos || line[second + 1] != '/') continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") ReadGroups(sys, path, kVersion2, &tightest);
    if (controllers.find(",memory,") != std::string::npos) ReadGroups(sys + "/memory", path, kVersion1, &tightest);
  }
  return tightest;
}

MemoryBudget::MemoryBudget(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}

absl::Status MemoryBudget::Reserve(int num_slots, uint64_t slot_bytes, uint64_t total_bytes) {
  const std::string what = absl::StrCat("the session needs ", num_slots, " slots of ", Megabytes(slot_bytes), ", ",
                                        Megabytes(total_bytes), " together");
  const std::string advice = "; use a smaller prefetch_factor or batch_size or a smaller dtype";
  std::unique_lock lock(mutex_);
  const auto fits = [&] { return total_bytes <= limit_bytes_ && used_bytes_ <= limit_bytes_ - total_bytes; };
  released_.wait_for(lock, std::chrono::seconds(1), [&] { return fits() || leaving_bytes_ == 0; });
  if (!fits()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, "; the daemon may use ", Megabytes(limit_bytes_), " (--host-memory), and ", rings_,
                     " other sessions have ", Megabytes(used_bytes_), " of it", advice, ", or raise --host-memory"));
  }
  if (const auto group = ReadCgroupMemory("/proc", "/sys/fs/cgroup"); group && total_bytes + untaken_bytes_ > group->free_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, "; the control group's limit is ", Megabytes(group->limit_bytes), " (", group->file,
                     "), and ", Megabytes(group->free_bytes), " of it are free", advice,
                     ", or raise the memory limit of the container or service"));
  }
  used_bytes_ += total_bytes;
  untaken_bytes_ += total_bytes;
  ++rings_;
  return absl::OkStatus();
}

void MemoryBudget::Taken(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  untaken_bytes_ -= bytes;
}

void MemoryBudget::ReleaseSoon(uint64_t total_bytes) {
  std::lock_guard lock(mutex_);
  leaving_bytes_ += total_bytes;
}

void MemoryBudget::Released(uint64_t total_bytes, uint64_t untaken_bytes) {
  {
    std::lock_guard lock(mutex_);
    leaving_bytes_ -= total_bytes;
    used_bytes_ -= total_bytes;
    untaken_bytes_ -= untaken_bytes;
    --rings_;
  }
  released_.notify_all();
}

uint64_t MemoryBudget::used_bytes() const {
  std::lock_guard lock(mutex_);
  return used_bytes_;
}

}  // namespace headrace
