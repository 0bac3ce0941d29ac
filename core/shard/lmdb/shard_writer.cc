#include "core/shard/lmdb/shard_writer.h"

#include <lmdb.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/shard/format.h"
#include "core/shard/lmdb/lmdb_status.h"

namespace headrace {
namespace {

// Fixed, because the places of pages depend on it. Large enough that the pages which each commit writes again do not
// matter (about ten per commit), small enough for the packer's memory.
constexpr uint64_t kTransactionBytes = uint64_t{32} << 20;
constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kOverflowBytes = 2000;  // LMDB gives longer values pages of their own
constexpr uint64_t kNodeBytes = 18;        // key and node header beside a value

// LMDB's map is only address space here. Never smaller than what a shard can become: values just above kOverflowBytes
// take twice their length.
uint64_t MapBytes(uint64_t shard_bytes) {
  const uint64_t bytes = 3 * shard_bytes + (uint64_t{1} << 30);
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

uint64_t StoredBytes(uint64_t length) {
  if (length <= kOverflowBytes) return length + kNodeBytes;
  return (length + 16 + kPageBytes - 1) / kPageBytes * kPageBytes + kNodeBytes;
}

// LMDB reports a short write as EIO. Short writes come from a full disk, a quota or a limit: writing on tells which.
int WhyShortWrite(MDB_env* env) {
  int fd;
  if (mdb_env_get_fd(env, &fd) != 0) return EIO;
  const std::string zeros(1 << 20, '\0');
  off_t end = ::lseek(fd, 0, SEEK_END);
  for (int i = 0; i < 64; ++i) {
    const ssize_t n = ::pwrite(fd, zeros.data(), zeros.size(), end);
    if (n < 0) return errno;
    end += n;
  }
  return EIO;
}

}  // namespace

class ShardWriter::Impl {
 public:
  ~Impl() {
    if (txn_ != nullptr) mdb_txn_abort(txn_);
    if (env_ != nullptr) mdb_env_close(env_);
  }

  absl::Status Open(const std::string& path, const std::vector<Field>& fields, uint64_t shard_bytes) {
    what_ = absl::StrCat("cannot write ", path);
    shard_bytes_ = shard_bytes;
    if (::access(path.c_str(), F_OK) == 0) return ErrnoStatus(EEXIST, what_);
    HEADRACE_RETURN_IF_ERROR(Check(mdb_env_create(&env_)));
    HEADRACE_RETURN_IF_ERROR(Check(mdb_env_set_mapsize(env_, MapBytes(shard_bytes))));
    HEADRACE_RETURN_IF_ERROR(Check(mdb_env_set_maxdbs(env_, static_cast<MDB_dbi>(fields.size()))));
    // No MDB_WRITEMAP: a full disk is an error code from pwrite then, and no SIGBUS. No lock file: nobody else knows
    // the file yet. Without MDB_NOMEMINIT no stale memory reaches it.
    HEADRACE_RETURN_IF_ERROR(Check(mdb_env_open(env_, path.c_str(), MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOSYNC, 0644)));
    HEADRACE_RETURN_IF_ERROR(Check(mdb_txn_begin(env_, nullptr, 0, &txn_)));
    for (const Field& field : fields) {
      MDB_dbi dbi;
      HEADRACE_RETURN_IF_ERROR(Check(mdb_dbi_open(txn_, field.name.c_str(), MDB_CREATE, &dbi)));
      dbis_.push_back(dbi);
    }
    return absl::OkStatus();
  }

  absl::Status Append(uint64_t sample, absl::Span<const absl::Span<const uint8_t>> values) {
    uint64_t big_endian = __builtin_bswap64(sample);
    for (size_t i = 0; i < dbis_.size(); ++i) {
      MDB_val key{sizeof big_endian, &big_endian};
      MDB_val value{values[i].size(), const_cast<uint8_t*>(values[i].data())};
      HEADRACE_RETURN_IF_ERROR(Check(mdb_put(txn_, dbis_[i], &key, &value, MDB_APPEND)));
      transaction_bytes_ += StoredBytes(values[i].size());
    }
    if (transaction_bytes_ < kTransactionBytes) return absl::OkStatus();
    HEADRACE_RETURN_IF_ERROR(Commit());
    return Check(mdb_txn_begin(env_, nullptr, 0, &txn_));
  }

  absl::Status Finish() {
    HEADRACE_RETURN_IF_ERROR(Commit());
    mdb_env_close(env_);
    env_ = nullptr;
    return absl::OkStatus();
  }

  uint64_t bytes() const { return committed_bytes_ + transaction_bytes_; }
  uint64_t shard_bytes() const { return shard_bytes_; }

 private:
  absl::Status Commit() {
    committed_bytes_ += transaction_bytes_;
    transaction_bytes_ = 0;
    return Check(mdb_txn_commit(std::exchange(txn_, nullptr)));
  }

  absl::Status Check(int code) {
    if (code == EIO) code = WhyShortWrite(env_);
    if (code == ENOSPC || code == EDQUOT || code == EFBIG) {
      return absl::ResourceExhaustedError(absl::StrCat(what_, ": ", strerror(code)));
    }
    return LmdbStatus(code, what_);
  }

  std::string what_;
  uint64_t shard_bytes_ = 0;
  uint64_t committed_bytes_ = 0, transaction_bytes_ = 0;
  MDB_env* env_ = nullptr;
  MDB_txn* txn_ = nullptr;
  std::vector<MDB_dbi> dbis_;
};

ShardWriter::ShardWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ShardWriter::~ShardWriter() = default;

absl::StatusOr<std::unique_ptr<ShardWriter>> ShardWriter::Create(const std::string& path,
                                                                 const std::vector<Field>& fields,
                                                                 uint64_t shard_bytes) {
  HEADRACE_RETURN_IF_ERROR(ValidateFields(fields));
  auto impl = std::make_unique<Impl>();
  HEADRACE_RETURN_IF_ERROR(impl->Open(path, fields, shard_bytes));
  return std::unique_ptr<ShardWriter>(new ShardWriter(std::move(impl)));
}

absl::Status ShardWriter::Append(uint64_t sample, absl::Span<const absl::Span<const uint8_t>> values) {
  ++num_samples_;
  return impl_->Append(sample, values);
}

bool ShardWriter::full() const {
  return num_samples_ >= kMaxSamplesPerShard || impl_->bytes() >= impl_->shard_bytes();
}

absl::Status ShardWriter::Finish() { return impl_->Finish(); }

}  // namespace headrace
