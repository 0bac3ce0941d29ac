// The order of samples and the cutting of an epoch into steps: pure functions in O(1) memory (docs/order.md).
#pragma once

#include <cstdint>
#include <optional>

#include "core/batch/permutation.h"
#include "core/batch/session_spec.h"

namespace headrace {

// Shuffle::kBlocks: blocks of this many consecutive samples, and windows of this many blocks; part of order_version.
inline constexpr uint64_t kBlockSamples = 16;
inline constexpr uint64_t kWindowBlocks = 1024;

// The order of one epoch. kGlobal: a keyed permutation of 0 … size−1. kBlocks: blocks in a random order, and a random order of
// the samples of each window of blocks, so that reading stays within kWindowBlocks · kBlockSamples = 16,384 samples for a
// while. Only the low 32 bits of `epoch` count. A value of a few words; thread-safe.
class EpochOrder {
 public:
  EpochOrder(uint64_t size, uint64_t seed, uint64_t epoch, Shuffle shuffle);

  // The sample at a position; positions from `size` on wrap around (padding). size > 0.
  uint64_t SampleAt(uint64_t position) const;

  // For reading ahead under kBlocks: the same samples in the order in which they lie on the disk, window after window. The
  // samples of positions [k·W, (k+1)·W) and of places [k·W, (k+1)·W) are the same set, W = window_samples().
  uint64_t StoredSampleAt(uint64_t place) const;
  static constexpr uint64_t window_samples() { return kBlockSamples * kWindowBlocks; }

 private:
  struct Window {
    uint64_t first, size, number;  // first position, samples
  };
  Window WindowOf(uint64_t position) const;

  uint64_t size_, seed_;
  uint32_t epoch_;
  Shuffle shuffle_;
  std::optional<Permutation> permutation_;  // of the samples (kGlobal), of the blocks (kBlocks, if there is one)
  uint64_t rotation_ = 0;                   // kBlocks: the sample at which block 0 begins
};

// What one rank takes in one step.
struct StepRange {
  uint64_t first_position;  // of this rank's part; may lie at or behind N when padding
  uint32_t count;           // 0 … batch_size; 0: an empty part of a partial last step
  Cursor next;              // the cursor behind this step; {epoch, N} after an epoch's last
};

// The step that starts at `cursor` (StepsLeft ≥ 1), W = world_size, B = batch_size, remaining R = N − position:
//   R ≥ B·W: rank r takes position + r·B, B samples.
//   else partial: rank r takes ⌊R/W⌋ or one more, in rank order;  pad: as partial with R rounded up to a multiple of W,
//   positions counting on from N (samples wrap around);  drop: the step does not exist (see Normalized).
StepRange StepAt(const SessionSpec& spec, const Cursor& cursor);

// The cursor at which the next batch really starts: moves on to {epoch + 1, 0} when no step is left in the epoch. An epoch
// that has no step at all (an empty dataset; drop with N < B·W) is SessionSpec::Validate's error, not looked for here.
Cursor Normalized(const SessionSpec& spec, const Cursor& cursor);

// Steps from `cursor` to the end of its epoch: partial and pad ⌈R/(B·W)⌉, drop ⌊R/(B·W)⌋.
uint64_t StepsLeft(const SessionSpec& spec, const Cursor& cursor);

// The same for a dataset of `size` samples; the functions above take the size from spec.dataset.
StepRange StepAt(const SessionSpec& spec, uint64_t size, const Cursor& cursor);
Cursor Normalized(const SessionSpec& spec, uint64_t size, const Cursor& cursor);
uint64_t StepsLeft(const SessionSpec& spec, uint64_t size, const Cursor& cursor);

}  // namespace headrace
