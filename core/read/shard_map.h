// A dataset's shards mapped read-only, for GPUs: which parts they may read, and their index in memory. Nothing in this process looks at
// the mapped bytes, so a file that is cut meanwhile is no SIGBUS.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/base/status.h"
#include "core/shard/dataset.h"
#include "core/shard/held_index.h"

namespace headrace {

// Add is called by one thread, Find by any.
class ShardMap {
 public:
  // A part of a file is added as a whole: what crosses from one to the next is not found.
  static constexpr uint64_t kPartBytes = uint64_t{128} << 20;
  // What keeps a part known to the GPUs.
  using Pinned = std::shared_ptr<void>;
  using Pin = std::function<absl::StatusOr<Pinned>(const uint8_t* address, uint64_t bytes)>;

  // Takes address space only. INTERNAL: it is refused.
  static absl::StatusOr<std::unique_ptr<ShardMap>> Create(std::shared_ptr<const Dataset> dataset);
  ~ShardMap();

  // Of all shards.
  size_t num_parts() const { return parts_.size(); }
  uint64_t pinned_bytes() const { return pinned_bytes_.load(std::memory_order_relaxed); }
  // Brings part `part` into memory, which blocks on the disk, then pins it; with a shard's first part its index. CANCELLED once `stop`
  // says so; DATA_LOSS: a file is shorter than it was; RESOURCE_EXHAUSTED: no memory for the index.
  absl::Status Add(size_t part, const Pin& pin, const std::function<bool()>& stop);

  // Bytes of a shard's file as GPUs read them; null: they are not (yet) known to these.
  const uint8_t* Find(uint32_t shard, uint64_t offset, uint64_t bytes) const;
  const HeldIndex& index() const { return index_; }

 private:
  explicit ShardMap(std::shared_ptr<const Dataset> dataset) : dataset_(std::move(dataset)), index_(*dataset_) {}
  struct Shard {
    uint8_t* memory = nullptr;
    uint64_t bytes = 0;
    size_t first_part = 0;
  };
  struct Part {
    uint32_t shard;
    uint64_t offset, bytes;
    Pinned pinned;
  };

  const std::shared_ptr<const Dataset> dataset_;
  HeldIndex index_;
  std::vector<Shard> shards_;
  std::vector<Part> parts_;
  std::vector<std::atomic<bool>> is_pinned_;  // by part
  std::atomic<uint64_t> pinned_bytes_{0};
};

}  // namespace headrace
