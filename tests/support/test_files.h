// Files that tests read: the test images, and others.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "core/base/file.h"

namespace headrace::testing {

// The test images' folder: $HEADRACE_TEST_DATA, or shared/data beside the sources; perhaps neither exists.
inline std::filesystem::path TestDataFolder() {
  const char* named = std::getenv("HEADRACE_TEST_DATA");
  if (named != nullptr) return named;
  return std::filesystem::path(__FILE__).parent_path().parent_path().parent_path().parent_path() / "shared" / "data";
}

// All files below `folder` of at most 4 MiB, in the order of their names; under the thread sanitizer every eighth, since who asks for
// them has one thread.
inline std::vector<std::vector<uint8_t>> FilesBelow(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  if (std::filesystem::is_directory(folder)) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file()) paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::vector<uint8_t>> files;
  for (size_t i = 0; i < paths.size(); i += TEST_SLOWDOWN < 50 ? 1 : 8) {
    const auto bytes = ReadFile(paths[i], 4 << 20);
    if (bytes.ok()) files.emplace_back(bytes->begin(), bytes->end());
  }
  return files;
}

}  // namespace headrace::testing
