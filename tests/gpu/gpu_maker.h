// Bursts on a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/augment/gpu/renderer.h"
#include "core/base/status.h"
#include "tests/gpu/batch_maker.h"

namespace headrace::testing {

class GpuMaker : public BatchMaker {
 public:
  explicit GpuMaker(GpuRenderer* gpu) : gpu_(gpu) {}
  ~GpuMaker() override {
    cudaFree(memory_);
    (void)FreePinned();
  }
  absl::Status Begin(const Recipe& recipe) override { return gpu_->Begin(recipe); }
  absl::StatusOr<ByteRange> Plan(const GpuSample& sample) override { return gpu_->Plan(sample); }
  uint8_t* Stage(uint64_t bytes) override { return *gpu_->Stage(bytes); }
  absl::Status AddStaged(uint64_t bytes) override { return gpu_->AddStaged(bytes); }
  // At odd addresses, as they lie in a shard, up to the end of what is pinned.
  absl::Status AddMapped(const uint8_t* bytes, uint64_t size) override {
    constexpr uint64_t kPageBytes = 4096;
    const uint64_t room = (size + kPageBytes - 1) / kPageBytes * kPageBytes;
    void* pinned = nullptr;
    HEADRACE_RETURN_IF_ERROR(Check(cudaMallocHost(&pinned, room)));
    pinned_.push_back(pinned);
    uint8_t* const at = static_cast<uint8_t*>(pinned) + (room - size);
    std::copy_n(bytes, size, at);
    return gpu_->AddMapped(at, size);
  }
  absl::Status Make(std::vector<uint8_t>* out, std::vector<uint32_t>* left) override {
    HEADRACE_RETURN_IF_ERROR(Check(cudaFree(memory_)));
    HEADRACE_RETURN_IF_ERROR(Check(cudaMalloc(&memory_, out->size())));
    HEADRACE_RETURN_IF_ERROR(Check(cudaMemcpy(memory_, out->data(), out->size(), cudaMemcpyHostToDevice)));
    HEADRACE_RETURN_IF_ERROR(Check(cudaDeviceSynchronize()));  // of memory that is not pinned the copy returns before it has arrived
    HEADRACE_RETURN_IF_ERROR(gpu_->Launch(memory_));
    HEADRACE_RETURN_IF_ERROR(gpu_->Finish(left));
    HEADRACE_RETURN_IF_ERROR(Check(cudaMemcpy(out->data(), memory_, out->size(), cudaMemcpyDeviceToHost)));
    return FreePinned();
  }

 private:
  static absl::Status Check(cudaError_t code) {
    return code == cudaSuccess ? absl::OkStatus() : absl::InternalError(cudaGetErrorString(code));
  }

  // What the kernels of the burst have read.
  absl::Status FreePinned() {
    absl::Status status;
    for (void* pinned : std::exchange(pinned_, {})) status.Update(Check(cudaFreeHost(pinned)));
    return status;
  }

  GpuRenderer* const gpu_;
  void* memory_ = nullptr;
  std::vector<void*> pinned_;
};

}  // namespace headrace::testing
