#include "core/shard/held_index.h"

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/shard/dataset.h"
#include "core/shard/manifest.h"

namespace headrace {

HeldIndex::HeldIndex(const Dataset& dataset) : files_(dataset.num_shards()), verified_(dataset.size()) {}

absl::Status HeldIndex::Add(const Dataset& dataset, uint32_t shard) {
  File& file = files_[shard];
  if (file.is_here.load(std::memory_order_relaxed)) return absl::OkStatus();
  const uint64_t size = dataset.index_bytes(shard);
  std::unique_ptr<uint8_t[]> bytes(new (std::nothrow) uint8_t[size]);
  if (bytes == nullptr) return absl::ResourceExhaustedError(absl::StrCat("no memory for ", size, " bytes of index"));
  const absl::Status read = ReadAt(dataset.index_fd(shard), bytes.get(), size, 0, ShardIndexPath(dataset.dir(), shard));
  if (!read.ok()) return absl::DataLossError(read.message());
  file.bytes = std::move(bytes);
  file.size = size;
  file.is_here.store(true, std::memory_order_release);
  return absl::OkStatus();
}

absl::Span<const uint8_t> HeldIndex::Find(uint32_t shard) const {
  const File& file = files_[shard];
  if (!file.is_here.load(std::memory_order_acquire)) return {};
  return {file.bytes.get(), file.size};
}

}  // namespace headrace
