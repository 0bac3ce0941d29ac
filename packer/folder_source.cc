#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <set>

#include "absl/strings/str_cat.h"
#include "core/base/utf8.h"
#include "packer/directory.h"
#include "packer/source.h"

namespace headrace {
namespace {

using Type = DirectoryListing::Type;

absl::StatusOr<std::string> RealPath(const std::string& path) {
  char resolved[PATH_MAX];
  if (::realpath(path.c_str(), resolved) == nullptr) return ErrnoStatus(errno, absl::StrCat("cannot open ", path));
  return std::string(resolved);
}

bool IsBelow(const std::string& path, const std::string& dir) {
  if (dir == "/") return path.size() > 1;
  return path.size() > dir.size() && path.compare(0, dir.size(), dir) == 0 && path[dir.size()] == '/';
}

// "a/b": whether a part begins with a dot.
bool HasHiddenPart(const std::string& relative) {
  return relative[0] == '.' || relative.find("/.") != std::string::npos;
}

class FolderSource final : public Source {
 public:
  absl::Status Open(const std::string& dir, const std::string& exclude) {
    HEADRACE_ASSIGN_OR_RETURN(path_, RealPath(dir));
    struct stat info;
    if (::stat(path_.c_str(), &info) != 0) return ErrnoStatus(errno, absl::StrCat("cannot open ", dir));
    if (!S_ISDIR(info.st_mode)) {
      return absl::InvalidArgumentError(absl::StrCat(dir, " is no folder (a list of files: --list ", dir, ")"));
    }
    visited_.insert({info.st_dev, info.st_ino});
    if (::stat(exclude.c_str(), &info) == 0) {
      has_excluded_ = true;
      excluded_ = {info.st_dev, info.st_ino};
    }
    HEADRACE_ASSIGN_OR_RETURN(DirectoryListing listing, DirectoryListing::Read(path_));
    for (size_t i = 0; i < listing.size(); ++i) {
      if (listing.type(i) != Type::kDirectory) continue;
      const std::string name(listing.name(i));
      if (!IsExcluded(absl::StrCat(path_, "/", name))) class_folders_.push_back(name);
    }
    layout_ = class_folders_.empty() ? "folder" : "imagefolder";
    fields_.push_back({"image", FieldKind::kImage, 0});
    if (!class_folders_.empty()) fields_.push_back({"label", FieldKind::kInt64, 0});
    fields_.push_back({"name", FieldKind::kText, 0});
    for (const std::string& name : class_folders_) classes_.push_back(EscapeToUtf8(name));
    listing_ = std::move(listing);
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Next(SourceItem* item) override {
    while (true) {
      if (!notes_.empty()) {
        *item = std::move(notes_.back());
        notes_.pop_back();
        return true;
      }
      if (NextOfListing(item)) return true;
      if (!NextFolder() && notes_.empty()) return false;  // the last class may leave nothing but notes
    }
  }

 private:
  using FileId = std::pair<dev_t, ino_t>;

  bool IsExcluded(const std::string& path) const {
    struct stat info;
    return has_excluded_ && ::stat(path.c_str(), &info) == 0 && FileId{info.st_dev, info.st_ino} == excluded_;
  }

  // The next file of the folder that is open. Its folders were or will be met by EnterClass.
  bool NextOfListing(SourceItem* item) {
    while (next_entry_ < listing_.size()) {
      const size_t i = next_entry_++;
      const Type type = listing_.type(i);
      if (type == Type::kDirectory) continue;
      const std::string name(listing_.name(i));
      *item = {};
      item->name = folder_.empty() ? name : absl::StrCat(folder_, "/", name);
      item->path = absl::StrCat(path_, "/", item->name);
      item->label = class_number_;
      if (type != Type::kFile) {
        item->verdict = Verdict::kSkipped;
        item->reason = type == Type::kOther ? "not a regular file" : "a link that leads nowhere";
      } else if (class_number_ < 0 && !class_folders_.empty()) {
        item->verdict = Verdict::kSkipped;
        item->reason = "beside the class folders";
      }
      return true;
    }
    return false;
  }

  // Opens the next folder of this class, or the next class.
  bool NextFolder() {
    while (next_subfolder_ == subfolders_.size()) {
      if (class_number_ + 1 >= static_cast<int64_t>(class_folders_.size())) return false;
      ++class_number_;
      FindSubfolders(class_folders_[static_cast<size_t>(class_number_)]);
    }
    folder_ = std::move(subfolders_[next_subfolder_++]);
    next_entry_ = 0;
    absl::StatusOr<DirectoryListing> listing = DirectoryListing::Read(absl::StrCat(path_, "/", folder_));
    listing_ = listing.ok() ? *std::move(listing) : DirectoryListing();
    if (!listing.ok()) Note(folder_, Verdict::kSkipped, std::string(listing.status().message()));
    return true;
  }

  // All folders of a class, sorted by path as torchvision does.
  void FindSubfolders(const std::string& class_folder) {
    subfolders_.clear();
    next_subfolder_ = 0;
    struct stat info;
    const std::string path = absl::StrCat(path_, "/", class_folder);
    const bool is_link = ::lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode);
    std::vector<std::string> open;
    if (Enter(class_folder, is_link)) open.push_back(class_folder);
    while (!open.empty()) {
      const std::string folder = std::move(open.back());
      open.pop_back();
      const absl::StatusOr<DirectoryListing> listing = DirectoryListing::Read(absl::StrCat(path_, "/", folder));
      subfolders_.push_back(folder);
      if (!listing.ok() || !listing->has_directories()) continue;  // an unreadable one is reported by NextFolder
      for (size_t i = listing->size(); i-- > 0;) {
        if (listing->type(i) != Type::kDirectory) continue;
        std::string below = absl::StrCat(folder, "/", std::string(listing->name(i)));
        if (Enter(below, listing->is_link(i))) open.push_back(std::move(below));
      }
    }
    std::sort(subfolders_.begin(), subfolders_.end());
    std::sort(notes_.begin(), notes_.end(), [](const SourceItem& a, const SourceItem& b) { return a.name > b.name; });
  }

  // Whether the folder is to be walked; notes why not. A link to a folder that is met under its own name as well is not
  // followed, so that the names do not depend on which of the two comes first.
  bool Enter(const std::string& folder, bool is_link) {
    const std::string path = absl::StrCat(path_, "/", folder);
    if (IsExcluded(path)) return false;
    if (is_link) {
      const absl::StatusOr<std::string> real = RealPath(path);
      if (!real.ok()) return Note(folder, Verdict::kSkipped, "a link that leads nowhere");
      if (*real == path_ || IsBelow(path_, *real)) {
        return Note(folder, Verdict::kWarning, "a link to a folder above it; not followed");
      }
      if (IsBelow(*real, path_) && !HasHiddenPart(real->substr(path_ == "/" ? 1 : path_.size() + 1))) {
        return Note(folder, Verdict::kWarning, "a link to a folder that is packed under its own name; not followed");
      }
    }
    struct stat info;
    if (::stat(path.c_str(), &info) != 0) return Note(folder, Verdict::kSkipped, "cannot be opened");
    if (!visited_.insert({info.st_dev, info.st_ino}).second) {
      return Note(folder, Verdict::kWarning, "a folder that is packed already under another name; not followed");
    }
    return true;
  }

  bool Note(const std::string& folder, Verdict verdict, const std::string& reason) {
    SourceItem note;
    note.name = folder;
    note.verdict = verdict;
    note.reason = reason;
    notes_.push_back(std::move(note));
    return false;
  }

  std::vector<std::string> class_folders_;  // as on the disk
  std::set<FileId> visited_;
  bool has_excluded_ = false;
  FileId excluded_{};
  std::vector<SourceItem> notes_;  // to be handed out, the last one first

  int64_t class_number_ = -1;  // -1: the packed folder itself
  std::vector<std::string> subfolders_;
  size_t next_subfolder_ = 0;
  std::string folder_;  // the open one, below path_; "" for path_ itself
  DirectoryListing listing_;
  size_t next_entry_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Source>> OpenFolderSource(const std::string& dir, const std::string& exclude) {
  auto source = std::make_unique<FolderSource>();
  HEADRACE_RETURN_IF_ERROR(source->Open(dir, exclude));
  return source;
}

}  // namespace headrace
