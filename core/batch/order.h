// The order of samples and the cutting of an epoch into steps: pure functions in O(1) memory (docs/order.md).
#pragma once

#include <cstdint>

#include "core/batch/session_spec.h"

namespace headrace {

// Keyed permutation of 0 … size−1 (a Feistel network on Philox with cycle walking, docs/order.md).
class EpochOrder {
 public:
  EpochOrder(uint64_t size, uint64_t seed, uint64_t epoch, Shuffle shuffle);
  // The sample at a position; positions from `size` on wrap around (padding).
  uint64_t SampleAt(uint64_t position) const;

 private:
  uint64_t size_, seed_, epoch_;
  Shuffle shuffle_;
  int half_bits_ = 0;
};

// What one rank takes in one step.
struct StepRange {
  uint64_t first_position;  // of this rank's part; may lie at or behind N when padding
  uint32_t count;           // 0 … batch_size; 0: an empty part of a partial last step
  Cursor next;              // the cursor behind this step; {epoch, N} after an epoch's last
};

// The step that starts at `cursor` (cursor.position < N), W = world_size, B = batch_size:
//   remaining R = N − position ≥ B·W: rank r takes position + r·B, B samples.
//   else partial: rank r takes ⌊R/W⌋ or one more, in rank order;  pad: as partial with R rounded up to a multiple of W,
//   positions counting on from N (samples wrap around);  drop: the step does not exist (see Normalized).
StepRange StepAt(const SessionSpec& spec, const Cursor& cursor);

// The cursor at which the next batch really starts: moves on to {epoch + 1, 0} when no step is left in the epoch.
Cursor Normalized(const SessionSpec& spec, const Cursor& cursor);

// Steps from `cursor` to the end of its epoch: partial and pad ⌈R/(B·W)⌉, drop ⌊R/(B·W)⌋.
uint64_t StepsLeft(const SessionSpec& spec, const Cursor& cursor);

}  // namespace headrace
