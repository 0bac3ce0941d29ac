// The kernels of one batch, started in order on one stream without waiting in between.
#pragma once

#include "core/augment/gpu/burst.h"

namespace headrace::gpu {

// Returns at once; `stream` is a cudaStream_t. 0, or CUDA's error.
int LaunchBurst(const Burst& burst, void* stream);

}  // namespace headrace::gpu
