// The kernels of one burst, started in order without waiting in between.
#pragma once

#include <cstddef>

#include "core/augment/gpu/burst.h"

namespace headrace::gpu {

// Streams, one for each group, and events for going apart and meeting: cudaStream_t and cudaEvent_t. The first group's stream meets none.
struct Lanes {
  void* streams[kGroups];
  void* fork;
  void* join[kGroups];
};

// From pinned host memory to the GPU's, both aligned to 16; whole words.
struct BroughtPiece {
  const void* from;
  void* to;
  uint64_t bytes;
};

// All return at once. 0, or CUDA's error.
// For a device, before its first burst.
int SetUpKernels();
// What the burst's pointers point to, before it is launched.
int BringBurst(const BroughtPiece* pieces, size_t count, void* stream);
// Before LaunchBurst: the coefficients, to zero.
int ClearBurst(const Burst& burst, void* stream);
// On the first stream it is all behind what is there, and before what follows.
int LaunchBurst(const Burst& burst, const Lanes& lanes);

}  // namespace headrace::gpu
