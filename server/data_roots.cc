#include "server/data_roots.h"

#include <climits>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

// The file that a descriptor has open, whatever became of its name.
std::string OpenFilePath(int fd) {
  std::error_code error;
  return fs::read_symlink(absl::StrCat("/proc/self/fd/", fd), error).string();
}

}  // namespace

DataRoots DataRoots::Unrestricted() {
  DataRoots roots;
  roots.unrestricted_ = true;
  return roots;
}

absl::StatusOr<DataRoots> DataRoots::Create(const std::vector<std::string>& roots) {
  DataRoots result;
  for (const std::string& root : roots) {
    std::error_code error;
    const fs::path resolved = fs::canonical(root, error);
    if (error) return ErrnoStatus(error.value(), "data root " + root);
    if (!fs::is_directory(resolved, error)) {
      return absl::InvalidArgumentError(absl::StrCat("data root ", root, " is not a directory"));
    }
    result.roots_.push_back(resolved.string());
  }
  return result;
}

bool DataRoots::Contains(const std::string& resolved) const {
  if (unrestricted_) return true;
  for (const std::string& root : roots_) {
    if (root == "/" || resolved == root) return true;
    if (resolved.size() > root.size() && resolved.compare(0, root.size(), root) == 0 && resolved[root.size()] == '/') {
      return true;
    }
  }
  return false;
}

absl::StatusOr<std::string> DataRoots::Resolve(const std::string& path) const {
  if (path.empty() || path[0] != '/' || path.size() >= PATH_MAX || path.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("dataset '", path, "' must be an absolute path"));
  }
  std::error_code error;
  // Resolves what exists of it; the rest only loses its "." and "..".
  const std::string resolved = fs::weakly_canonical(path, error).string();
  if (error || !Contains(resolved)) {
    if (unrestricted_) return ErrnoStatus(error.value(), path);
    return absl::PermissionDeniedError(absl::StrCat(path, " is not below a data root of this daemon (",
                                                    absl::StrJoin(roots_, ", "), ")"));
  }
  if (!fs::exists(resolved, error)) return absl::NotFoundError(absl::StrCat(path, " does not exist"));
  return resolved;
}

absl::Status DataRoots::CheckFiles(const Dataset& dataset) const {
  if (unrestricted_) return absl::OkStatus();
  std::error_code error;
  const auto check = [&](const std::string& name, const std::string& resolved) {
    if (Contains(resolved)) return absl::OkStatus();
    return absl::PermissionDeniedError(absl::StrCat(name, " leads outside the data roots of this daemon"));
  };
  const std::string description = dataset.dir() + "/dataset.json";
  HEADRACE_RETURN_IF_ERROR(check(description, fs::canonical(description, error).string()));
  for (uint32_t shard = 0; shard < dataset.num_shards(); ++shard) {
    const std::string path = dataset.shard_path(shard);
    HEADRACE_RETURN_IF_ERROR(check(path, OpenFilePath(dataset.shard_fd(shard))));
    const std::string index = fs::path(path).replace_extension(".index").string();
    HEADRACE_RETURN_IF_ERROR(check(index, fs::canonical(index, error).string()));
  }
  return absl::OkStatus();
}

}  // namespace headrace
