// All of a burst one behind the other in memory. Internal to core/augment/gpu.
#pragma once

#include <array>
#include <cstdint>

#include "core/augment/gpu/burst.h"
#include "core/augment/gpu/planner.h"

namespace headrace::gpu {

// Offsets of parts that are 256 apart, in two memories: of what is brought, and of what the kernels write.
struct Layout {
  // What the host brings.
  struct Piece {
    const void* from;
    uint64_t bytes, at;
  };
  std::array<Piece, 8 + kGroups * kTasks> pieces;
  uint64_t mapped, brought_bytes;  // where the mapped images' bytes go
  uint64_t failed, tables, lengths, words, coefficients, planes, written_bytes;
};

Layout LayOut(const Planner& planner);
// The burst in these memories, aligned like their parts, for a batch at `out`. Touches none of them.
Burst PlaceBurst(const Planner& planner, const Layout& layout, uint8_t* brought, uint8_t* written, void* out);

}  // namespace headrace::gpu
