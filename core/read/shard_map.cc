#include "core/read/shard_map.h"

#include <errno.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "core/base/file.h"

namespace headrace {

absl::StatusOr<std::unique_ptr<ShardMap>> ShardMap::Create(std::shared_ptr<const Dataset> dataset) {
  std::unique_ptr<ShardMap> map(new ShardMap(std::move(dataset)));
  const Dataset& from = *map->dataset_;
  for (uint32_t number = 0; number < from.num_shards(); ++number) {
    Shard shard;
    shard.bytes = from.shard_bytes(number);
    shard.first_part = map->parts_.size();
    if (shard.bytes > 0) {
      void* memory = ::mmap(nullptr, shard.bytes, PROT_READ, MAP_SHARED, from.shard_fd(number), 0);
      if (memory == MAP_FAILED) return ErrnoStatus(errno, "cannot map " + from.shard_path(number));
      shard.memory = static_cast<uint8_t*>(memory);
    }
    map->shards_.push_back(shard);
    for (uint64_t at = 0; at < shard.bytes; at += kPartBytes) {
      map->parts_.push_back({number, at, std::min(kPartBytes, shard.bytes - at), nullptr});
    }
  }
  map->is_pinned_ = std::vector<std::atomic<bool>>(map->parts_.size());
  return map;
}

ShardMap::~ShardMap() {
  parts_.clear();  // unpinned before they are unmapped
  for (const Shard& shard : shards_) {
    if (shard.memory != nullptr) ::munmap(shard.memory, shard.bytes);
  }
}

absl::Status ShardMap::Add(size_t number, const Pin& pin, const std::function<bool()>& stop) {
  Part& part = parts_[number];
  if (part.offset == 0) HEADRACE_RETURN_IF_ERROR(index_.Add(*dataset_, part.shard));
  // Read, not touched: a file that was cut is a status.
  constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
  std::vector<uint8_t> piece(std::min(kPieceBytes, part.bytes));
  for (uint64_t at = 0; at < part.bytes; at += piece.size()) {
    if (stop()) return absl::CancelledError();
    const uint64_t bytes = std::min<uint64_t>(piece.size(), part.bytes - at);
    const absl::Status read =
        ReadAt(dataset_->shard_fd(part.shard), piece.data(), bytes, part.offset + at, dataset_->shard_path(part.shard));
    if (!read.ok()) return absl::DataLossError(read.message());
  }
  HEADRACE_ASSIGN_OR_RETURN(part.pinned, pin(shards_[part.shard].memory + part.offset, part.bytes));
  pinned_bytes_.fetch_add(part.bytes, std::memory_order_relaxed);
  is_pinned_[number].store(true, std::memory_order_release);
  return absl::OkStatus();
}

const uint8_t* ShardMap::Find(uint32_t number, uint64_t offset, uint64_t bytes) const {
  const Shard& shard = shards_[number];
  if (bytes == 0 || offset > shard.bytes || bytes > shard.bytes - offset) return nullptr;
  const uint64_t part = offset / kPartBytes;
  if ((offset + bytes - 1) / kPartBytes != part || !is_pinned_[shard.first_part + part].load(std::memory_order_acquire)) return nullptr;
  return shard.memory + offset;
}

}  // namespace headrace
