// Where the packer's files come from: a folder or a list. Sources name files in a fixed order and open none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "core/shard/dataset.h"

namespace headrace {

// What report.csv says of a file.
enum class Verdict : uint8_t {
  kPacked,    // not in the report
  kDamaged,   // packed, but its library warned (--check)
  kTranscoded,  // packed with the same pixels and other bytes
  kNoEntries,   // packed without the entry points that it should have: they contradicted libjpeg (--check)
  kRejected,  // its content is no readable image
  kSkipped,   // not looked at: beside the class folders, a broken link, no regular file
  kWarning,   // nothing lost: a folder met a second time, a class without samples
};

// One file, or one line for the report (verdict is not kPacked).
struct SourceItem {
  std::string path;  // to open
  std::string name;  // the field `name`: below the packed folder, or as listed. Any bytes but zero
  int64_t label = 0;
  std::vector<std::variant<int64_t, double, std::string>> columns;  // like the fields behind `name`
  Verdict verdict = Verdict::kPacked;
  std::string reason;
};

// Not thread-safe.
class Source {
 public:
  virtual ~Source() = default;

  // The next item, in an order that depends on nothing but names; false at the end. Blocks on the disk.
  virtual absl::StatusOr<bool> Next(SourceItem* item) = 0;

  // `image`, `label` where there are labels, `name`, then the list's further columns.
  const std::vector<Field>& fields() const { return fields_; }
  bool has_labels() const { return fields_[1].name == "label"; }
  const std::vector<std::string>& classes() const { return classes_; }  // UTF-8
  // imagefolder, folder, list.
  const std::string& layout() const { return layout_; }
  // Absolute, without links.
  const std::string& path() const { return path_; }
  // Changes when a list's content changes; 0 for folders, whose items are compared one by one.
  uint64_t content_hash() const { return content_hash_; }

 protected:
  std::vector<Field> fields_;
  std::vector<std::string> classes_;
  std::string layout_, path_;
  uint64_t content_hash_ = 0;
};

// `dir` with subfolders is an ImageFolder: class = first folder, images at any depth below it, in torchvision's order.
// Without subfolders it has no labels. Links are followed, but no real directory is met twice; hidden names are left out,
// and so is the directory `exclude` (the dataset itself; may be missing). Memory: the names of one folder, and 16 bytes
// per folder met. NOT_FOUND, INVALID_ARGUMENT when `dir` is no folder.
absl::StatusOr<std::unique_ptr<Source>> OpenFolderSource(const std::string& dir, const std::string& exclude);

// A CSV file (RFC 4180, UTF-8) with a header: `path`, perhaps `label`, and further columns. Paths are absolute or relative
// to the list. Integer labels stay as they are, others are sorted into classes. A further column is int64 if all its
// values are, float64 if all are numbers, else text. Reads the file two or three times here, and once more by Next. INVALID_ARGUMENT
// names the line.
absl::StatusOr<std::unique_ptr<Source>> OpenListSource(const std::string& csv_path);

}  // namespace headrace
