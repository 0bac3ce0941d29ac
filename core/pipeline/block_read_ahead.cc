#include "core/pipeline/block_read_ahead.h"

#include <algorithm>

#include "core/pipeline/page_cache.h"

namespace headrace {
namespace {

constexpr uint64_t kWindow = EpochOrder::window_samples();

}  // namespace

bool BlockReadAhead::Fits(const SessionSpec& spec, int local_ranks, uint64_t memory_bytes) {
  return spec.shuffle == Shuffle::kBlocks && spec.dataset->size() > kWindow && local_ranks >= spec.world_size &&
         MeanSampleBytes(*spec.dataset) * 2 * kWindow <= memory_bytes / 2;
}

bool BlockReadAhead::Advance(const SessionSpec& spec, const Cursor& cursor, const EpochOrder& order, int max_blocks) {
  const uint64_t size = spec.dataset->size(), window_end = (cursor.position / kWindow + 1) * kWindow;
  if (epoch_ != cursor.epoch || done_ < window_end || done_ > cursor.position + 2 * kWindow) {
    epoch_ = cursor.epoch;  // the first window, or one that a seek led to, is read sample by sample
    done_ = window_end;
  }
  const uint64_t goal = std::min(size, cursor.position + kWindow);
  const auto world = static_cast<uint64_t>(spec.world_size), rank = static_cast<uint64_t>(spec.rank);
  while (done_ < goal) {
    const uint64_t places = std::min(kBlockSamples, size - done_);
    if (done_ / kBlockSamples % world == rank) {
      if (max_blocks-- == 0) return true;
      ReadBlock(*spec.dataset, order, done_, places);
    }
    done_ += places;
  }
  return false;
}

void BlockReadAhead::ReadBlock(const Dataset& dataset, const EpochOrder& order, uint64_t first_place,
                               uint64_t places) {
  const uint64_t first = order.StoredSampleAt(first_place), last = order.StoredSampleAt(first_place + places - 1);
  const int image = dataset.FindField("image");
  if (image < 0 || !dataset.ReadRow(first, &first_).ok() || !dataset.ReadRow(last, &last_).ok()) return;
  const ValueLocation& begin = first_.values[static_cast<size_t>(image)].location;
  const ValueLocation& end = last_.values[static_cast<size_t>(image)].location;
  // A block that crosses a shard's border, or the dataset's end, is left to the reading sample by sample: it is rare.
  if (begin.shard != end.shard || end.offset < begin.offset) return;
  if (IsCached(dataset, begin) && IsCached(dataset, end)) return;
  PrefetchRange(dataset.shard_fd(begin.shard), begin.offset, end.offset + end.length - begin.offset);
  // Entry data lies in the order of the samples too; in pieces, for the same reason as in PrefetchRange.
  if (first_.entries_bytes == 0 || last_.entries_bytes == 0) return;
  const uint64_t entries_end = last_.entries_offset + last_.entries_bytes;
  for (first_.entries_bytes = 128 << 10; first_.entries_offset < entries_end; first_.entries_offset += 128 << 10) {
    dataset.PrefetchEntries(first_);
  }
}

uint64_t MeanSampleBytes(const Dataset& dataset) {
  return std::max<uint64_t>(1, dataset.all_shard_bytes() / std::max<uint64_t>(1, dataset.size()));
}

}  // namespace headrace
