// A burst without a GPU.
#pragma once

#include "core/augment/gpu/burst.h"

namespace headrace::testing {

// Does what the kernels of core/augment/gpu/kernels.cu do, in their order, with the same functions, one thread after the other.
// Everything that the burst points to is the host's memory; its coefficients are cleared first.
void RunBurst(const gpu::Burst& burst);

}  // namespace headrace::testing
