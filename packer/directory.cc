#include "packer/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"

namespace headrace {
namespace {

using Type = DirectoryListing::Type;

Type TypeOfMode(mode_t mode) {
  return S_ISREG(mode) ? Type::kFile : S_ISDIR(mode) ? Type::kDirectory : Type::kOther;
}

// Asks the file system only where the directory entry does not tell.
void Classify(int dir_fd, const dirent& entry, Type* type, bool* is_link) {
  *is_link = false;
  switch (entry.d_type) {
    case DT_REG: *type = Type::kFile; return;
    case DT_DIR: *type = Type::kDirectory; return;
    case DT_LNK:
    case DT_UNKNOWN: break;
    default: *type = Type::kOther; return;
  }
  struct stat info;
  *type = Type::kBroken;
  if (::fstatat(dir_fd, entry.d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) return;
  *is_link = S_ISLNK(info.st_mode);
  if (*is_link && ::fstatat(dir_fd, entry.d_name, &info, 0) != 0) return;
  *type = TypeOfMode(info.st_mode);
}

}  // namespace

absl::StatusOr<DirectoryListing> DirectoryListing::Read(const std::string& path) {
  std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(path.c_str()), &::closedir);
  if (dir == nullptr) return ErrnoStatus(errno, absl::StrCat("cannot read folder ", path));
  DirectoryListing listing;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(dir.get());
    if (entry == nullptr) {
      if (errno != 0) return ErrnoStatus(errno, absl::StrCat("cannot read folder ", path));
      break;
    }
    if (entry->d_name[0] == '.') continue;
    const size_t length = std::strlen(entry->d_name);
    Entry added{listing.names_.size(), static_cast<uint16_t>(length), Type::kOther, false};
    Classify(::dirfd(dir.get()), *entry, &added.type, &added.is_link);
    listing.has_directories_ |= added.type == Type::kDirectory;
    listing.names_.append(entry->d_name, length);
    listing.entries_.push_back(added);
  }
  const char* names = listing.names_.data();
  std::sort(listing.entries_.begin(), listing.entries_.end(), [names](const Entry& a, const Entry& b) {
    return std::string_view(names + a.begin, a.length) < std::string_view(names + b.begin, b.length);
  });
  return listing;
}

}  // namespace headrace
