// The names in one directory, sorted, kept in little memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace headrace {

class DirectoryListing {
 public:
  // A link is what it leads to, with is_link set; kBroken where that does not exist.
  enum class Type : uint8_t { kFile, kDirectory, kOther, kBroken };

  // Blocks on the disk. Hidden names (".…") are left out.
  static absl::StatusOr<DirectoryListing> Read(const std::string& path);

  size_t size() const { return entries_.size(); }
  // By bytes, ascending; without a zero at the end.
  std::string_view name(size_t i) const { return {names_.data() + entries_[i].begin, entries_[i].length}; }
  Type type(size_t i) const { return entries_[i].type; }
  bool is_link(size_t i) const { return entries_[i].is_link; }
  bool has_directories() const { return has_directories_; }

 private:
  struct Entry {
    uint64_t begin;
    uint16_t length;
    Type type;
    bool is_link;
  };
  std::string names_;
  std::vector<Entry> entries_;
  bool has_directories_ = false;
};

}  // namespace headrace
