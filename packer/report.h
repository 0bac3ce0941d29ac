// DST/report.csv: what was not packed, and why (columns file,verdict,reason).
#pragma once

#include <string>

#include "core/base/unique_fd.h"
#include "packer/source.h"

namespace headrace {

std::string VerdictName(Verdict verdict);

// Not thread-safe.
class Report {
 public:
  // Opens or makes `path` and cuts it to `keep_bytes` (0: only the header).
  absl::Status Open(const std::string& path, uint64_t keep_bytes);
  absl::Status Add(const std::string& file, Verdict verdict, const std::string& reason);
  // Hands what was added to the operating system; `sync`: to the disk.
  absl::Status Flush(bool sync);
  // Of everything that was added.
  uint64_t size() const { return size_; }

 private:
  std::string path_, buffer_;
  UniqueFd fd_;
  uint64_t size_ = 0;
};

}  // namespace headrace
