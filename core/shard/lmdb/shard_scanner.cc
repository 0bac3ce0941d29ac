#include "core/shard/lmdb/shard_scanner.h"

#include <lmdb.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "core/shard/lmdb/lmdb_status.h"

namespace headrace {
namespace {

constexpr uint64_t kReleaseEvery = 4096;  // samples
constexpr uint64_t kLeastMapBytes = 1 << 20;

// LMDB does not tell where its map begins, the kernel does: the line of /proc/self/maps that holds `inside`.
absl::StatusOr<const uint8_t*> FindFileStart(int fd, const void* inside, const std::string& what) {
  struct stat file;
  if (::fstat(fd, &file) != 0) return ErrnoStatus(errno, what);
  std::unique_ptr<FILE, int (*)(FILE*)> maps(std::fopen("/proc/self/maps", "re"), &std::fclose);
  if (maps == nullptr) return ErrnoStatus(errno, "cannot open /proc/self/maps");
  const auto address = reinterpret_cast<uintptr_t>(inside);
  char line[4608];
  while (std::fgets(line, sizeof line, maps.get()) != nullptr) {
    uintptr_t begin, end;
    uint64_t offset, inode;
    if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %" SCNx64 " %*s %" SCNu64, &begin, &end, &offset, &inode) != 4) {
      continue;
    }
    if (address < begin || address >= end) continue;
    if (inode != file.st_ino) break;
    return reinterpret_cast<const uint8_t*>(begin - offset);
  }
  return absl::InternalError(absl::StrCat(what, ": its map was not found in /proc/self/maps"));
}

}  // namespace

class ShardScanner::Impl {
 public:
  ~Impl() {
    for (MDB_cursor* cursor : cursors_) mdb_cursor_close(cursor);
    if (txn_ != nullptr) mdb_txn_abort(txn_);
    if (env_ != nullptr) mdb_env_close(env_);
  }

  absl::Status Open(const std::string& path, const std::vector<Field>& fields) {
    what_ = absl::StrCat("cannot read ", path);
    HEADRACE_RETURN_IF_ERROR(Check(mdb_env_create(&env_)));
    // Instead of the map that the writer had, gigabytes of address space: LMDB raises this to what the file holds.
    HEADRACE_RETURN_IF_ERROR(Check(mdb_env_set_mapsize(env_, kLeastMapBytes)));
    HEADRACE_RETURN_IF_ERROR(Check(mdb_env_set_maxdbs(env_, static_cast<MDB_dbi>(fields.size()))));
    HEADRACE_RETURN_IF_ERROR(
        Check(mdb_env_open(env_, path.c_str(), MDB_NOSUBDIR | MDB_NOLOCK | MDB_RDONLY, 0644)));
    HEADRACE_RETURN_IF_ERROR(Check(mdb_env_get_fd(env_, &fd_)));
    struct stat file;
    if (::fstat(fd_, &file) != 0) return ErrnoStatus(errno, what_);
    file_bytes_ = static_cast<uint64_t>(file.st_size);
    HEADRACE_RETURN_IF_ERROR(Check(mdb_txn_begin(env_, nullptr, MDB_RDONLY, &txn_)));
    for (const Field& field : fields) {
      MDB_dbi dbi;
      const int code = mdb_dbi_open(txn_, field.name.c_str(), 0, &dbi);
      if (code == MDB_NOTFOUND) {
        return absl::DataLossError(absl::StrCat(what_, ": it has no database named `", field.name, "`"));
      }
      HEADRACE_RETURN_IF_ERROR(Check(code));
      MDB_cursor* cursor;
      HEADRACE_RETURN_IF_ERROR(Check(mdb_cursor_open(txn_, dbi, &cursor)));
      cursors_.push_back(cursor);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Next(uint64_t* sample, std::vector<ScannedValue>* values) {
    if (++since_release_ == kReleaseEvery) ReleasePages();
    values->resize(cursors_.size());
    size_t ended = 0;
    for (size_t i = 0; i < cursors_.size(); ++i) {
      MDB_val key, data;
      const int code = mdb_cursor_get(cursors_[i], &key, &data, MDB_NEXT);  // the first call positions at the first
      if (code == MDB_NOTFOUND) {
        ++ended;
        continue;
      }
      HEADRACE_RETURN_IF_ERROR(Check(code));
      uint64_t number;
      if (key.mv_size != sizeof number) return absl::DataLossError(absl::StrCat(what_, ": a key is no sample number"));
      std::memcpy(&number, key.mv_data, sizeof number);
      number = __builtin_bswap64(number);
      if (i > 0 && (ended > 0 || number != *sample)) return Uneven();
      *sample = number;
      HEADRACE_ASSIGN_OR_RETURN((*values)[i], Place(data));
    }
    if (ended != 0 && ended != cursors_.size()) return Uneven();
    return ended == 0;
  }

 private:
  // Pages that were looked at count as the process's memory, a whole shard of them if its values are small. They stay
  // in the page cache and come back when touched.
  void ReleasePages() {
    since_release_ = 0;
    if (file_start_ != nullptr) ::madvise(const_cast<uint8_t*>(file_start_), file_bytes_, MADV_DONTNEED);
  }

  absl::StatusOr<ScannedValue> Place(const MDB_val& data) {
    const auto* bytes = static_cast<const uint8_t*>(data.mv_data);
    if (file_start_ == nullptr) {
      HEADRACE_ASSIGN_OR_RETURN(file_start_, FindFileStart(fd_, bytes, what_));
    }
    const auto offset = static_cast<uint64_t>(bytes - file_start_);
    if (bytes < file_start_ || offset > file_bytes_ || data.mv_size > file_bytes_ - offset) {
      return absl::DataLossError(absl::StrCat(what_, ": a value lies outside the file"));
    }
    return ScannedValue{offset, {bytes, data.mv_size}};
  }

  absl::Status Uneven() const {
    return absl::DataLossError(absl::StrCat(what_, ": its databases hold different samples"));
  }

  absl::Status Check(int code) const {
    if (code == 0) return absl::OkStatus();
    return LmdbStatus(code, what_);
  }

  std::string what_;
  int fd_ = -1;  // LMDB's
  uint64_t file_bytes_ = 0;
  MDB_env* env_ = nullptr;
  MDB_txn* txn_ = nullptr;
  std::vector<MDB_cursor*> cursors_;
  const uint8_t* file_start_ = nullptr;
  uint64_t since_release_ = 0;
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

}  // namespace headrace
