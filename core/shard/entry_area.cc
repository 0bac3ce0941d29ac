#include "core/shard/entry_area.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/shard/format.h"

namespace headrace {
namespace {

constexpr size_t kBufferBytes = size_t{256} << 10;

size_t RoundUp(size_t bytes) { return (bytes + kEntryAlignment - 1) / kEntryAlignment * kEntryAlignment; }

}  // namespace

struct EntryArea::Hash {
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state{XXH3_createState(), &XXH3_freeState};
};

EntryArea::EntryArea() : hash_(std::make_unique<Hash>()) { XXH3_64bits_reset(hash_->state.get()); }
EntryArea::~EntryArea() = default;

absl::StatusOr<std::unique_ptr<EntryArea>> EntryArea::Create(const std::string& index_path) {
  std::unique_ptr<EntryArea> area(new EntryArea());
  area->path_ = absl::StrCat(index_path, ".entries.tmp");
  ::unlink(area->path_.c_str());
  area->fd_ = UniqueFd(::open(area->path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!area->fd_.valid() || ::unlink(area->path_.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot create ", area->path_));
  }
  return area;
}

absl::Status EntryArea::Append(const std::string& tables, std::string* entries, SampleRow* row) {
  const XXH128_hash_t hash = XXH3_128bits(tables.data(), tables.size());
  const uint64_t behind = size_ + RoundUp(entries->size());
  const auto [place, added] = tables_.insert({{hash.high64, hash.low64}, behind});
  SetTablesOffset(place->second, entries);
  row->entries_offset = size_;
  row->entries_bytes = added ? behind - size_ + tables.size() : entries->size();
  HEADRACE_RETURN_IF_ERROR(Put(*entries));
  return added ? Put(tables) : absl::OkStatus();
}

// Each piece begins at a multiple of 64.
absl::Status EntryArea::Put(const std::string& bytes) {
  const size_t begin = buffer_.size();
  buffer_ += bytes;
  buffer_.resize(begin + RoundUp(bytes.size()));
  XXH3_64bits_update(hash_->state.get(), buffer_.data() + begin, buffer_.size() - begin);
  size_ += buffer_.size() - begin;
  return buffer_.size() < kBufferBytes ? absl::OkStatus() : Flush();
}

absl::Status EntryArea::Flush() {
  HEADRACE_RETURN_IF_ERROR(WriteAll(fd_.get(), buffer_.data(), buffer_.size(), path_));
  buffer_.clear();
  return absl::OkStatus();
}

uint64_t EntryArea::checksum() const { return XXH3_64bits_digest(hash_->state.get()); }

}  // namespace headrace
