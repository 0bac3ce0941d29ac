#include "packer/csv.h"

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace headrace {
namespace {

constexpr size_t kMaxRecordBytes = size_t{1} << 20;

}  // namespace

absl::StatusOr<CsvReader> CsvReader::Open(const std::string& path) {
  errno = 0;
  CsvReader reader(path);
  if (!reader.file_.is_open()) return ErrnoStatus(errno, absl::StrCat("cannot open ", path));
  char mark[3] = {};
  reader.file_.read(mark, sizeof mark);
  if (reader.file_.gcount() != 3 || std::string(mark, 3) != "\xEF\xBB\xBF") {
    reader.file_.clear();
    reader.file_.seekg(0);
  }
  return reader;
}

absl::Status CsvReader::Bad(const std::string& what) const {
  return absl::InvalidArgumentError(absl::StrCat(path_, ", line ", record_line_, ": ", what));
}

int CsvReader::Get() {
  int c = file_.get();
  if (c == '\r' && file_.peek() == '\n') c = file_.get();
  if (c == '\n') ++line_;
  return c == std::ifstream::traits_type::eof() ? -1 : c;
}

absl::StatusOr<bool> CsvReader::Next(std::vector<std::string>* record) {
  while (file_.peek() == '\n' || file_.peek() == '\r') {
    if (Get() == '\r') break;  // a lone CR is a value
  }
  record_line_ = line_;
  record->clear();
  if (file_.peek() == std::ifstream::traits_type::eof()) {
    if (file_.bad()) return ErrnoStatus(errno, absl::StrCat("cannot read ", path_));
    return false;
  }
  std::string value;
  size_t record_bytes = 0;
  while (true) {
    int c = Get();
    if (value.empty() && c == '"') {
      for (c = Get();; c = Get()) {
        if (c < 0) return Bad("a quote is not closed");
        if (c == '"' && file_.peek() != '"') break;
        if (c == '"') Get();
        value += static_cast<char>(c);
        if (++record_bytes > kMaxRecordBytes) return Bad("a record of more than 1 MiB");
      }
      c = Get();
      if (c >= 0 && c != ',' && c != '\n') return Bad("text behind a closing quote");
    } else {
      for (; c >= 0 && c != ',' && c != '\n'; c = Get()) {
        value += static_cast<char>(c);
        if (++record_bytes > kMaxRecordBytes) return Bad("a record of more than 1 MiB");
      }
    }
    record->push_back(std::move(value));
    value.clear();
    if (c != ',') return true;
  }
}

std::string CsvQuote(const std::string& value) {
  if (value.find_first_of(",\"\r\n") == std::string::npos) return value;
  std::string quoted = "\"";
  for (char c : value) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

}  // namespace headrace
