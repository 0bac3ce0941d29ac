#include "packer/destination.h"

#include <charconv>
#include <filesystem>
#include <optional>

#include "absl/strings/str_cat.h"
#include "core/shard/known_bad.h"
#include "core/shard/manifest.h"
#include "packer/journal.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

// The shard that a file's name belongs to: five digits or more, then .lmdb or .index, perhaps .tmp.
std::optional<uint32_t> ShardOfFile(const std::string& name) {
  uint32_t number;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data(), end, number);
  if (error != std::errc() || rest - name.data() < 5) return std::nullopt;
  const std::string suffix(rest, end);
  for (const char* known : {".lmdb", ".index", ".lmdb.tmp", ".index.tmp", ".index.entries.tmp"}) {
    if (suffix == known) return number;
  }
  return std::nullopt;
}

absl::Status Remove(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  return error ? ErrnoStatus(error.value(), absl::StrCat("cannot remove ", path.string())) : absl::OkStatus();
}

}  // namespace

absl::Status MakeFolders(const std::string& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) return ErrnoStatus(error.value(), absl::StrCat("cannot make folder ", dir));
  return absl::OkStatus();
}

bool HasManifest(const std::string& dir) {
  std::error_code error;
  return fs::exists(absl::StrCat(dir, "/", kManifestName), error);
}

bool HasJournal(const std::string& dir) {
  std::error_code error;
  return fs::exists(absl::StrCat(dir, "/", kJournalName), error);
}

bool HasShards(const std::string& dir) {
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    if (ShardOfFile(it->path().filename().string())) return true;
  }
  return false;
}

absl::Status RemoveShards(const std::string& dir, uint32_t first_shard) {
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const std::optional<uint32_t> shard = ShardOfFile(name);
    const bool unfinished = name.ends_with(".tmp");
    if (shard && (*shard >= first_shard || unfinished)) HEADRACE_RETURN_IF_ERROR(Remove(it->path()));
  }
  if (error) return ErrnoStatus(error.value(), absl::StrCat("cannot read folder ", dir));
  return absl::OkStatus();
}

absl::Status RemoveDataset(const std::string& dir) {
  HEADRACE_RETURN_IF_ERROR(Remove(absl::StrCat(dir, "/", kManifestName)));
  HEADRACE_RETURN_IF_ERROR(Remove(absl::StrCat(dir, "/", kManifestName, ".tmp")));
  HEADRACE_RETURN_IF_ERROR(Remove(absl::StrCat(dir, "/report.csv")));
  HEADRACE_RETURN_IF_ERROR(Remove(absl::StrCat(dir, "/", KnownBad::kFileName)));
  return RemoveShards(dir, 0);
}

}  // namespace headrace
