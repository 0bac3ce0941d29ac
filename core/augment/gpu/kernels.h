// The kernels of one batch, started in order on one stream without waiting in between.
#pragma once

#include "core/augment/gpu/burst.h"

namespace headrace::gpu {

// Both return at once; `stream` is a cudaStream_t. 0, or CUDA's error.
// Before the burst's data is brought, which would otherwise have left the caches again: the coefficients are many.
int ClearBurst(const Burst& burst, void* stream);
int LaunchBurst(const Burst& burst, void* stream);

}  // namespace headrace::gpu
