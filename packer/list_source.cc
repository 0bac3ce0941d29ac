#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <map>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "core/base/utf8.h"
#include "core/shard/checksum.h"
#include "core/shard/format.h"
#include "packer/csv.h"
#include "packer/source.h"

namespace headrace {
namespace {

std::optional<int64_t> ParseInt(const std::string& text) {
  int64_t value;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> ParseDouble(const std::string& text) {
  double value;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

class ListSource final : public Source {
 public:
  explicit ListSource(CsvReader reader) : reader_(std::move(reader)) {}

  absl::Status Open(const std::string& csv_path) {
    char resolved[PATH_MAX];
    if (::realpath(csv_path.c_str(), resolved) == nullptr) {
      return ErrnoStatus(errno, absl::StrCat("cannot open ", csv_path));
    }
    path_ = resolved;
    folder_ = path_.substr(0, path_.rfind('/') + 1);
    layout_ = "list";
    HEADRACE_ASSIGN_OR_RETURN(Checksum128 checksum, ChecksumFile(path_));
    std::copy_n(checksum.begin(), sizeof content_hash_, reinterpret_cast<uint8_t*>(&content_hash_));
    HEADRACE_RETURN_IF_ERROR(ReadHeader());
    HEADRACE_RETURN_IF_ERROR(FindKinds());
    HEADRACE_RETURN_IF_ERROR(Annotate(ValidateFields(fields_), csv_path));
    HEADRACE_ASSIGN_OR_RETURN(reader_, CsvReader::Open(path_));
    return reader_.Next(&record_).status();  // the header
  }

  absl::StatusOr<bool> Next(SourceItem* item) override {
    HEADRACE_ASSIGN_OR_RETURN(bool more, NextRecord(reader_));
    if (!more) return false;
    *item = {};
    item->name = record_[path_column_];
    item->path = item->name[0] == '/' ? item->name : folder_ + item->name;
    if (label_column_ >= 0) {
      const std::string& label = record_[static_cast<size_t>(label_column_)];
      if (classes_.empty()) {
        HEADRACE_ASSIGN_OR_RETURN(item->label, Int(label));
      } else {
        const auto at = class_numbers_.find(label);
        if (at == class_numbers_.end()) return Changed();
        item->label = at->second;
      }
    }
    for (size_t column : columns_) {
      const std::string& value = record_[column];
      switch (fields_[first_column_field_ + item->columns.size()].kind) {
        case FieldKind::kInt64: {
          HEADRACE_ASSIGN_OR_RETURN(int64_t number, Int(value));
          item->columns.emplace_back(number);
          break;
        }
        case FieldKind::kFloat64: {
          const std::optional<double> number = ParseDouble(value);
          if (!number) return Changed();
          item->columns.emplace_back(*number);
          break;
        }
        default: item->columns.emplace_back(value);
      }
    }
    return true;
  }

 private:
  absl::Status ReadHeader() {
    HEADRACE_ASSIGN_OR_RETURN(bool more, reader_.Next(&header_));
    const auto path = std::find(header_.begin(), header_.end(), "path");
    if (!more || path == header_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(reader_.path(), " needs a first line with the columns' names, and among them `path`"));
    }
    path_column_ = static_cast<size_t>(path - header_.begin());
    for (size_t i = 0; i < header_.size(); ++i) {
      if (EscapeToUtf8(header_[i]) != header_[i]) {
        return absl::InvalidArgumentError(absl::StrCat(reader_.path(), ": the name of column ", i + 1, " is no UTF-8"));
      }
      if (header_[i] != absl::StripAsciiWhitespace(header_[i])) {
        return absl::InvalidArgumentError(
            absl::StrCat(reader_.path(), ": the name of column ", i + 1, ", '", header_[i], "', begins or ends with a blank"));
      }
      if (i == path_column_) continue;
      if (header_[i] == "path") return absl::InvalidArgumentError(absl::StrCat(reader_.path(), " has two columns `path`"));
      if (header_[i] == "label" && label_column_ < 0) {
        label_column_ = static_cast<int>(i);
      } else {
        columns_.push_back(i);  // a clash with `image`, `name` or another column is found by ValidateFields
      }
    }
    return absl::OkStatus();
  }

  // The first pass: which columns are numbers.
  absl::Status FindKinds() {
    std::vector<bool> ints(header_.size(), true), doubles(header_.size(), true);
    uint64_t records = 0;
    while (true) {
      HEADRACE_ASSIGN_OR_RETURN(bool more, NextRecord(reader_));
      if (!more) break;
      ++records;
      for (size_t i = 0; i < record_.size(); ++i) {
        if (i == path_column_) continue;
        if (ints[i] && !ParseInt(record_[i])) ints[i] = false;
        if (!ints[i] && doubles[i] && !ParseDouble(record_[i])) doubles[i] = false;
        if (!ints[i] && !doubles[i] && EscapeToUtf8(record_[i]) != record_[i]) {
          return absl::InvalidArgumentError(
              absl::StrCat(reader_.path(), ", line ", reader_.line(), ": the value of `", header_[i], "` is no UTF-8"));
        }
      }
    }
    if (records == 0) return absl::InvalidArgumentError(absl::StrCat(reader_.path(), " lists no file"));
    fields_.push_back({"image", FieldKind::kImage, 0});
    if (label_column_ >= 0) fields_.push_back({"label", FieldKind::kInt64, 0});
    fields_.push_back({"name", FieldKind::kText, 0});
    first_column_field_ = fields_.size();
    for (size_t i : columns_) {
      const FieldKind kind = ints[i] ? FieldKind::kInt64 : doubles[i] ? FieldKind::kFloat64 : FieldKind::kText;
      fields_.push_back({header_[i], kind, 0});
    }
    if (label_column_ < 0 || ints[static_cast<size_t>(label_column_)]) return absl::OkStatus();
    return FindClasses();
  }

  // A pass of its own, so that a column of a million different integers is never kept.
  absl::Status FindClasses() {
    HEADRACE_ASSIGN_OR_RETURN(reader_, CsvReader::Open(path_));
    HEADRACE_RETURN_IF_ERROR(reader_.Next(&record_).status());  // the header
    while (true) {
      HEADRACE_ASSIGN_OR_RETURN(bool more, NextRecord(reader_));
      if (!more) break;
      class_numbers_.emplace(record_[static_cast<size_t>(label_column_)], 0);
    }
    for (auto& [name, number] : class_numbers_) {
      number = static_cast<int64_t>(classes_.size());
      classes_.push_back(EscapeToUtf8(name));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<bool> NextRecord(CsvReader& reader) {
    HEADRACE_ASSIGN_OR_RETURN(bool more, reader.Next(&record_));
    if (!more) return false;
    const std::string where = absl::StrCat(reader.path(), ", line ", reader.line());
    if (record_.size() != header_.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": ", record_.size(), " values for ", header_.size(), " columns"));
    }
    const std::string& path = record_[path_column_];
    if (path.empty()) return absl::InvalidArgumentError(absl::StrCat(where, ": the path is empty"));
    if (path.find('\0') != std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": the path has a zero byte"));
    }
    if (label_column_ >= 0 && record_[static_cast<size_t>(label_column_)].empty()) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": the label is empty"));
    }
    return true;
  }

  absl::StatusOr<int64_t> Int(const std::string& text) const {
    const std::optional<int64_t> number = ParseInt(text);
    if (!number) return Changed();
    return *number;
  }

  absl::Status Changed() const {
    return absl::AbortedError(absl::StrCat(reader_.path(), " was changed while it was read"));
  }

  CsvReader reader_;
  std::string folder_;  // with a slash at its end
  std::vector<std::string> header_, record_;
  size_t path_column_ = 0;
  int label_column_ = -1;
  std::vector<size_t> columns_;    // further columns
  size_t first_column_field_ = 0;  // in fields_
  std::map<std::string, int64_t> class_numbers_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Source>> OpenListSource(const std::string& csv_path) {
  struct stat file;
  if (::stat(csv_path.c_str(), &file) == 0 && !S_ISREG(file.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(csv_path, " is no regular file: a list is read several times, so no pipe will do"));
  }
  HEADRACE_ASSIGN_OR_RETURN(CsvReader reader, CsvReader::Open(csv_path));
  auto source = std::make_unique<ListSource>(std::move(reader));
  HEADRACE_RETURN_IF_ERROR(source->Open(csv_path));
  return source;
}

}  // namespace headrace
