#include "core/batch/order.h"

#include <algorithm>

namespace headrace {
namespace {

constexpr uint32_t kRotationRound = 14;
constexpr uint32_t kFirstWindowStream = 1;

uint64_t GlobalBatch(const SessionSpec& spec) {
  return static_cast<uint64_t>(spec.batch_size) * static_cast<uint64_t>(spec.world_size);
}

}  // namespace

EpochOrder::EpochOrder(uint64_t size, uint64_t seed, uint64_t epoch, Shuffle shuffle)
    : size_(size), seed_(seed), epoch_(static_cast<uint32_t>(epoch)), shuffle_(shuffle) {
  if (shuffle == Shuffle::kNone || size == 0) return;
  if (shuffle == Shuffle::kGlobal) {
    permutation_.emplace(size, seed_, epoch_, 0);
    return;
  }
  const uint64_t blocks = size / kBlockSamples;
  if (blocks > 0) permutation_.emplace(blocks, seed_, epoch_, 0);
  const auto words = PermutationWords(seed_, epoch_, 0, kRotationRound, 0);
  rotation_ = (static_cast<uint64_t>(words[1]) << 32 | words[0]) % size;
}

EpochOrder::Window EpochOrder::WindowOf(uint64_t position) const {
  // What does not fill a window of its own belongs to the last one, so that no window is small.
  const uint64_t windows = std::max<uint64_t>(1, size_ / kBlockSamples / kWindowBlocks);
  const uint64_t number = std::min(position / window_samples(), windows - 1);
  const uint64_t first = number * window_samples();
  return {first, number + 1 < windows ? window_samples() : size_ - first, number};
}

uint64_t EpochOrder::StoredSampleAt(uint64_t place) const {
  place %= size_;
  if (shuffle_ != Shuffle::kBlocks) return SampleAt(place);
  const uint64_t block_place = place / kBlockSamples;
  uint64_t sample = place;  // behind the last whole block: the samples that fill none
  if (permutation_ && block_place < permutation_->size()) {
    sample = (*permutation_)(block_place)*kBlockSamples + place % kBlockSamples;
  }
  return sample < size_ - rotation_ ? sample + rotation_ : sample - (size_ - rotation_);
}

uint64_t EpochOrder::SampleAt(uint64_t position) const {
  position %= size_;
  switch (shuffle_) {
    case Shuffle::kNone:
      return position;
    case Shuffle::kGlobal:
      return (*permutation_)(position);
    case Shuffle::kBlocks: {
      const Window window = WindowOf(position);
      const Permutation within(window.size, seed_, epoch_,
                               kFirstWindowStream + static_cast<uint32_t>(window.number));
      return StoredSampleAt(window.first + within(position - window.first));
    }
  }
  return position;
}

uint64_t StepsLeft(const SessionSpec& spec, uint64_t size, const Cursor& cursor) {
  if (cursor.position >= size) return 0;
  const uint64_t remaining = size - cursor.position, step = GlobalBatch(spec);
  if (spec.last_batch == LastBatch::kDrop) return remaining / step;
  return remaining / step + (remaining % step != 0);
}

Cursor Normalized(const SessionSpec& spec, uint64_t size, const Cursor& cursor) {
  return StepsLeft(spec, size, cursor) > 0 ? cursor : Cursor{cursor.epoch + 1, 0};
}

StepRange StepAt(const SessionSpec& spec, uint64_t size, const Cursor& cursor) {
  const uint64_t batch = static_cast<uint64_t>(spec.batch_size), world = static_cast<uint64_t>(spec.world_size);
  const uint64_t rank = static_cast<uint64_t>(spec.rank), step = GlobalBatch(spec);
  uint64_t remaining = size - std::min(size, cursor.position);
  StepRange range;
  if (remaining >= step) {
    range.first_position = cursor.position + rank * batch;
    range.count = static_cast<uint32_t>(batch);
    remaining -= step;
  } else {
    uint64_t shared = remaining;
    if (spec.last_batch == LastBatch::kPad) shared = (remaining + world - 1) / world * world;
    if (spec.last_batch == LastBatch::kDrop) shared = 0;
    const uint64_t each = shared / world, longer = shared % world;
    range.first_position = cursor.position + rank * each + std::min(rank, longer);
    range.count = static_cast<uint32_t>(each + (rank < longer ? 1 : 0));
    remaining = 0;
  }
  // What drop leaves out is behind the cursor as well, so that an epoch's end looks the same everywhere.
  if (spec.last_batch == LastBatch::kDrop && remaining < step) remaining = 0;
  range.next = {cursor.epoch, size - remaining};
  return range;
}

StepRange StepAt(const SessionSpec& spec, const Cursor& cursor) { return StepAt(spec, spec.dataset->size(), cursor); }

Cursor Normalized(const SessionSpec& spec, const Cursor& cursor) {
  return Normalized(spec, spec.dataset->size(), cursor);
}

uint64_t StepsLeft(const SessionSpec& spec, const Cursor& cursor) {
  return StepsLeft(spec, spec.dataset->size(), cursor);
}

}  // namespace headrace
