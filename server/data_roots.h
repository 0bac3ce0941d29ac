// Which directories a daemon serves.
#pragma once

#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/shard/dataset.h"

namespace headrace {

class DataRoots {
 public:
  // Everything that this process can read (private daemons).
  static DataRoots Unrestricted();
  // Each root must be an existing directory; links in it are resolved now.
  static absl::StatusOr<DataRoots> Create(const std::vector<std::string>& roots);

  // The absolute path without links, "." and "..". INVALID_ARGUMENT unless `path` is absolute; PERMISSION_DENIED if it
  // leads outside the roots (whether it exists there is not told); NOT_FOUND inside.
  absl::StatusOr<std::string> Resolve(const std::string& path) const;

  // PERMISSION_DENIED if a file of the opened dataset lies outside the roots: a link in its folder, or a folder that was
  // swapped while it was being opened.
  absl::Status CheckFiles(const Dataset& dataset) const;

  const std::vector<std::string>& roots() const { return roots_; }

 private:
  bool Contains(const std::string& resolved) const;

  bool unrestricted_ = false;
  std::vector<std::string> roots_;
};

}  // namespace headrace
