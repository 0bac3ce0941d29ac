#include "core/device/cuda/cuda_gpu.h"

namespace headrace {

absl::StatusOr<std::unique_ptr<Gpu>> OpenCudaGpu(const std::string&, uint64_t, const GpuLost&) {
  return absl::UnavailableError("this build of Headrace has no GPU engine: nvcc was not found when it was built");
}

}  // namespace headrace
