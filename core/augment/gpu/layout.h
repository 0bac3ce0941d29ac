// All of a burst one behind the other in one memory. Internal to core/augment/gpu.
#pragma once

#include <array>
#include <cstdint>

#include "core/augment/gpu/burst.h"
#include "core/augment/gpu/planner.h"

namespace headrace::gpu {

// Offsets, of parts that are 256 apart.
struct Layout {
  // What the host brings.
  struct Piece {
    const void* from;
    uint64_t bytes, at;
  };
  std::array<Piece, 7 + kGroups * kTasks> pieces;
  uint64_t failed, lengths, words, coefficients, planes, end;
};

Layout LayOut(const Planner& planner);
// The burst in `memory`, aligned like its parts, for a batch at `out`. Touches neither.
Burst PlaceBurst(const Planner& planner, const Layout& layout, uint8_t* memory, void* out);

}  // namespace headrace::gpu
