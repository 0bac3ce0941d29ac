// Comma-separated values as RFC 4180 has them.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace headrace {

// Reads records one by one. A byte-order mark at the beginning is dropped; lines end with LF or CRLF; blank lines are
// left out; quoted values may hold commas, quotes (doubled) and line ends. Not thread-safe.
class CsvReader {
 public:
  static absl::StatusOr<CsvReader> Open(const std::string& path);

  // False at the end of the file. INVALID_ARGUMENT, with file and line, for broken quoting and records above 1 MiB.
  absl::StatusOr<bool> Next(std::vector<std::string>* record);
  // Where the last record began, from 1.
  uint64_t line() const { return record_line_; }
  const std::string& path() const { return path_; }

 private:
  explicit CsvReader(const std::string& path) : path_(path), file_(path, std::ios::binary) {}
  absl::Status Bad(const std::string& what) const;
  // The next byte as Next sees it: CRLF is '\n'; -1 at the end.
  int Get();

  std::string path_;
  std::ifstream file_;
  uint64_t line_ = 1, record_line_ = 1;
};

// `value`, quoted if it needs to be.
std::string CsvQuote(const std::string& value);

}  // namespace headrace
