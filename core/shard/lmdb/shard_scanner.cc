// LMDB's format, version 1, of machines with 64 bits and little-endian numbers (mdb.c in LMDB 0.9: MDB_page, MDB_node, MDB_db,
// MDB_meta):
//
//   page     u64 its number, u16, u16 flags, then u16 end of the places and u16 begin of the nodes; places of the nodes (u16)
//   node     u32 length of its value, u16 flags, u16 length of its key, the key, the value. In a branch the first 48 bits are the
//            number of the page below. Flag 1: the value is the number of the first of the pages that hold it, behind 16 bytes
//   database u32, u16 flags, u16 depth of its tree, three u64, u64 entries, u64 root page
//   meta     (pages 0 and 1) u32 magic, u32 version, two u64, two databases (of free pages, whose first u32 is the page size, and
//            of names), u64 last page, u64 transaction: the higher one counts
#include "core/shard/lmdb/shard_scanner.h"

#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"

namespace headrace {
namespace {

constexpr uint64_t kPageHeaderBytes = 16, kNodeHeaderBytes = 8, kDatabaseBytes = 48;
constexpr uint64_t kMetaBytes = 24 + 2 * kDatabaseBytes + 16;
constexpr uint32_t kMagic = 0xBEEFC0DE, kVersion = 1;
constexpr uint16_t kBranch = 1, kLeaf = 2, kMeta = 8;  // of a page; exactly one of the lowest seven is set
constexpr uint16_t kKindOfPage = 0x7F & ~0x10;         // 0x10: a page that is being written
constexpr uint16_t kOnOtherPages = 1, kDatabase = 2;   // of a node
constexpr uint32_t kLeastPageBytes = 512, kMostPageBytes = 32768;
constexpr uint16_t kMostLevels = 32;  // LMDB's own bound
constexpr uint64_t kNoPage = UINT64_MAX;

template <typename T>
T Load(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// The file and its pages.
class Pages {
 public:
  absl::Status Open(const std::string& path) {
    what_ = absl::StrCat("cannot read ", path);
    HEADRACE_ASSIGN_OR_RETURN(file_, OpenForReading(path));
    HEADRACE_ASSIGN_OR_RETURN(file_bytes_, FileSize(file_.get(), path));
    uint64_t newest = 0;
    for (uint64_t i = 0; i < 2; ++i) {
      uint8_t page[kPageHeaderBytes + kMetaBytes];
      const uint64_t offset = i * page_bytes_;
      if (file_bytes_ < offset + sizeof page) return Damaged("it is too short for an LMDB file");
      HEADRACE_RETURN_IF_ERROR(ReadAt(file_.get(), page, sizeof page, offset, what_));
      const uint8_t* meta = page + kPageHeaderBytes;
      const auto page_bytes = Load<uint32_t>(meta + 24);
      if (Load<uint16_t>(page + 10) != kMeta || Load<uint32_t>(meta) != kMagic) return Damaged("it is no LMDB file");
      if (Load<uint32_t>(meta + 4) != kVersion) return Damaged("it is of another version of LMDB");
      if (page_bytes < kLeastPageBytes || page_bytes > kMostPageBytes || (page_bytes & (page_bytes - 1)) != 0 ||
          (i > 0 && page_bytes != page_bytes_)) {
        return Damaged(absl::StrCat("its pages have ", page_bytes, " bytes"));
      }
      page_bytes_ = page_bytes;
      const auto transaction = Load<uint64_t>(meta + kMetaBytes - 8);
      if (i == 0 || transaction > newest) std::memcpy(names_, meta + 24 + kDatabaseBytes, kDatabaseBytes);
      if (i == 0 || transaction > newest) newest = transaction;
    }
    return absl::OkStatus();
  }

  const uint8_t* names() const { return names_; }
  uint64_t page_bytes() const { return page_bytes_; }

  absl::Status Read(uint64_t number, std::vector<uint8_t>* page) const {
    if (!Holds(number, 0, page_bytes_)) return Damaged(absl::StrCat("there is no page ", number));
    page->resize(page_bytes_);
    HEADRACE_RETURN_IF_ERROR(ReadAt(file_.get(), page->data(), page_bytes_, number * page_bytes_, what_));
    if (Load<uint64_t>(page->data()) != number) return Damaged(absl::StrCat("page ", number, " is another one"));
    return absl::OkStatus();
  }

  // Whether the file has `bytes` from `offset` of a page on.
  bool Holds(uint64_t number, uint64_t offset, uint64_t bytes) const {
    return number <= file_bytes_ / page_bytes_ && bytes <= file_bytes_ && number * page_bytes_ + offset <= file_bytes_ - bytes;
  }

  absl::Status ReadValue(const ScannedValue& value, void* bytes) const {
    return ReadAt(file_.get(), bytes, value.length, value.offset, what_);
  }

  absl::Status Damaged(const std::string& why) const { return absl::DataLossError(absl::StrCat(what_, ": ", why)); }

 private:
  std::string what_;
  UniqueFd file_;
  uint64_t file_bytes_ = 0, page_bytes_ = 0;
  uint8_t names_[kDatabaseBytes];
};

// The entries of one database from the first on. Their keys must ascend, so that no loop of pages is walked for ever.
class Walk {
 public:
  struct Entry {
    std::string_view key;  // until the next one
    const uint8_t* inside = nullptr;  // the value, if it lies in the leaf
    ScannedValue value;
    uint16_t flags = 0;
  };

  absl::Status Begin(const Pages* pages, const uint8_t* database) {
    pages_ = pages;
    const auto flags = Load<uint16_t>(database + 4), depth = Load<uint16_t>(database + 6);
    const auto root = Load<uint64_t>(database + kDatabaseBytes - 8);
    if (flags != 0 || depth > kMostLevels || (depth == 0) != (root == kNoPage)) return pages->Damaged("a database is damaged");
    levels_.resize(depth);
    return depth == 0 ? absl::OkStatus() : Descend(0, root);
  }

  absl::StatusOr<bool> Next(Entry* entry) {
    size_t level = levels_.size();
    while (level > 0 && levels_[level - 1].next == levels_[level - 1].count) --level;
    if (level == 0) return false;
    for (; level < levels_.size(); ++level) {
      Level& branch = levels_[level - 1];
      HEADRACE_ASSIGN_OR_RETURN(const uint8_t* node, NodeAt(branch));
      ++branch.next;
      HEADRACE_RETURN_IF_ERROR(Descend(level, Load<uint64_t>(node) & 0xFFFF'FFFF'FFFF));
    }
    Level& leaf = levels_.back();
    HEADRACE_ASSIGN_OR_RETURN(const uint8_t* node, NodeAt(leaf));
    const bool is_first = is_first_;
    is_first_ = false;
    ++leaf.next;
    entry->flags = Load<uint16_t>(node + 4);
    entry->value.length = Load<uint32_t>(node);
    entry->key = {reinterpret_cast<const char*>(node + kNodeHeaderBytes), Load<uint16_t>(node + 6)};
    if (!is_first && entry->key <= last_key_) return pages_->Damaged("keys do not ascend");
    last_key_ = entry->key;
    const uint8_t* data = node + kNodeHeaderBytes + entry->key.size();
    const auto offset = static_cast<uint64_t>(data - leaf.page.data());
    const bool elsewhere = (entry->flags & kOnOtherPages) != 0;
    if (offset + (elsewhere ? sizeof(uint64_t) : entry->value.length) > leaf.page.size()) return pages_->Damaged(kOutside);
    entry->inside = elsewhere ? nullptr : data;
    const uint64_t page = elsewhere ? Load<uint64_t>(data) : leaf.number, begin = elsewhere ? kPageHeaderBytes : offset;
    if (!pages_->Holds(page, begin, entry->value.length)) return pages_->Damaged(kOutside);
    entry->value.offset = page * pages_->page_bytes() + begin;
    return true;
  }

 private:
  static constexpr char kOutside[] = "a value lies outside the file";
  struct Level {
    std::vector<uint8_t> page;
    uint64_t number = 0;
    uint32_t next = 0, count = 0;  // nodes
  };

  // With the page `number` as the one of its level.
  absl::Status Descend(size_t level, uint64_t number) {
    Level& at = levels_[level];
    HEADRACE_RETURN_IF_ERROR(pages_->Read(number, &at.page));
    at.number = number;
    const auto flags = Load<uint16_t>(at.page.data() + 10), places_end = Load<uint16_t>(at.page.data() + 12);
    if ((flags & kKindOfPage) != (level + 1 == levels_.size() ? kLeaf : kBranch) || places_end <= kPageHeaderBytes ||
        places_end % 2 != 0 || places_end > at.page.size()) {
      return pages_->Damaged(absl::StrCat("page ", number, " is damaged"));
    }
    at.next = 0;
    at.count = (places_end - kPageHeaderBytes) / 2;
    return absl::OkStatus();
  }

  // The level's next node, whose header and key lie in the page.
  absl::StatusOr<const uint8_t*> NodeAt(const Level& level) const {
    const uint64_t place = Load<uint16_t>(level.page.data() + kPageHeaderBytes + 2 * level.next);
    const uint8_t* node = level.page.data() + place;
    if (place < kPageHeaderBytes + 2 * level.count || place + kNodeHeaderBytes > level.page.size() ||
        place + kNodeHeaderBytes + Load<uint16_t>(node + 6) > level.page.size()) {
      return pages_->Damaged(absl::StrCat("page ", level.number, " is damaged"));
    }
    return node;
  }

  const Pages* pages_ = nullptr;
  std::vector<Level> levels_;  // from the root down
  std::string last_key_;
  bool is_first_ = true;
};

}  // namespace

class ShardScanner::Impl {
 public:
  absl::Status Open(const std::string& path, const std::vector<Field>& fields) {
    HEADRACE_RETURN_IF_ERROR(pages_.Open(path));
    walks_.resize(fields.size());
    std::vector<bool> found(fields.size());
    Walk names;
    HEADRACE_RETURN_IF_ERROR(names.Begin(&pages_, pages_.names()));
    for (Walk::Entry entry;;) {
      HEADRACE_ASSIGN_OR_RETURN(bool more, names.Next(&entry));
      if (!more) break;
      for (size_t i = 0; i < fields.size(); ++i) {
        if (entry.key != fields[i].name || entry.flags != kDatabase) continue;
        if (entry.value.length != kDatabaseBytes) return pages_.Damaged("a database is damaged");
        HEADRACE_RETURN_IF_ERROR(walks_[i].Begin(&pages_, entry.inside));
        found[i] = true;
      }
    }
    for (size_t i = 0; i < fields.size(); ++i) {
      if (!found[i]) return pages_.Damaged(absl::StrCat("it has no database named `", fields[i].name, "`"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Next(uint64_t* sample, std::vector<ScannedValue>* values) {
    values->resize(walks_.size());
    size_t ended = 0;
    for (size_t i = 0; i < walks_.size(); ++i) {
      Walk::Entry entry;
      HEADRACE_ASSIGN_OR_RETURN(bool more, walks_[i].Next(&entry));
      if (!more) {
        ++ended;
        continue;
      }
      if (entry.key.size() != sizeof(uint64_t)) return pages_.Damaged("a key is no sample number");
      if ((entry.flags & ~kOnOtherPages) != 0) return pages_.Damaged("an entry is no value");
      const uint64_t number = __builtin_bswap64(Load<uint64_t>(reinterpret_cast<const uint8_t*>(entry.key.data())));
      if (i > 0 && (ended > 0 || number != *sample)) return Uneven();
      *sample = number;
      (*values)[i] = entry.value;
    }
    if (ended != 0 && ended != walks_.size()) return Uneven();
    return ended == 0;
  }

  const Pages& pages() const { return pages_; }

 private:
  absl::Status Uneven() const { return pages_.Damaged("its databases hold different samples"); }

  Pages pages_;
  std::vector<Walk> walks_;  // one for each field
};

ShardScanner::ShardScanner(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ShardScanner::~ShardScanner() = default;

absl::StatusOr<std::unique_ptr<ShardScanner>> ShardScanner::Open(const std::string& path,
                                                                 const std::vector<Field>& fields) {
  auto impl = std::make_unique<Impl>();
  HEADRACE_RETURN_IF_ERROR(impl->Open(path, fields));
  return std::unique_ptr<ShardScanner>(new ShardScanner(std::move(impl)));
}

absl::StatusOr<bool> ShardScanner::Next() { return impl_->Next(&sample_, &values_); }

absl::Status ShardScanner::Read(const ScannedValue& value, void* bytes) const { return impl_->pages().ReadValue(value, bytes); }

}  // namespace headrace
