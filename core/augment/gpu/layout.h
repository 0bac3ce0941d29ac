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
  static constexpr size_t kPieces = 7 + kGroups * kTasks;
  std::array<Piece, kPieces> pieces;
  uint64_t brought_bytes;
  uint64_t tables, made_numbers, lengths, words, coefficients, planes, written_bytes;
};

Layout LayOut(const Planner& planner);
// The burst in these memories, aligned like their parts, for a batch at `out`; `failed` has a byte for each image. Touches none of them.
Burst PlaceBurst(const Planner& planner, const Layout& layout, uint8_t* brought, uint8_t* written, uint8_t* failed, void* out);

}  // namespace headrace::gpu
