// NVIDIA's GPUs. Everything of CUDA is opened when the first GPU is: a daemon that needs none runs without a driver.
#pragma once

#include <memory>
#include <string>

#include "core/device/gpu.h"

namespace headrace {

// OpenGpu of this build. Blocks for some 0.3 s, for the first context of the process.
absl::StatusOr<std::unique_ptr<Gpu>> OpenCudaGpu(const std::string& uuid, uint64_t memory_bytes, const GpuLost& lost);

}  // namespace headrace
