#include "core/augment/gpu/renderer.h"

#include <cuda_runtime_api.h>

#include <array>
#include <memory_resource>
#include <new>
#include <string>
#include <utility>

#include "core/augment/gpu/kernels.h"
#include "core/augment/gpu/layout.h"
#include "core/augment/gpu/pinned.h"
#include "core/augment/gpu/planner.h"

namespace headrace {
namespace {

absl::Status CudaStatus(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string message = std::string(what) + ": " + cudaGetErrorString(error);
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::ResourceExhaustedError(message);
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInvalidDevice:
    case cudaErrorNoKernelImageForDevice:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

}  // namespace

class GpuRenderer::Impl {
 public:
  Impl(int device, uint64_t memory_bytes) : device_(device), memory_bytes_(memory_bytes) {}
  ~Impl() {
    if (stream_ != nullptr) cudaStreamSynchronize(stream_);
    for (Half& half : halves_) {
      if (half.done != nullptr) cudaEventDestroy(half.done);
    }
    if (memory_ != nullptr) cudaFree(memory_);
    for (void* event : {lanes_.fork, lanes_.join}) {
      if (event != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(event));
    }
    if (lanes_.side != nullptr) cudaStreamDestroy(static_cast<cudaStream_t>(lanes_.side));
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  absl::Status Open() {
    HEADRACE_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(device_), "no usable GPU"));
    HEADRACE_RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "no usable GPU"));
    HEADRACE_RETURN_IF_ERROR(CudaStatus(cudaMalloc(reinterpret_cast<void**>(&memory_), memory_bytes_),
                                        ("GPU memory of " + std::to_string(memory_bytes_) + " bytes").c_str()));
    lanes_.main = stream_;
    HEADRACE_RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(reinterpret_cast<cudaStream_t*>(&lanes_.side), cudaStreamNonBlocking),
                                        "a stream"));
    for (void** event : {&lanes_.fork, &lanes_.join}) {
      HEADRACE_RETURN_IF_ERROR(
          CudaStatus(cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(event), cudaEventDisableTiming), "an event"));
    }
    for (Half& half : halves_) {
      HEADRACE_RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(&half.done, cudaEventDisableTiming | cudaEventBlockingSync), "an event"));
    }
    return absl::OkStatus();
  }

  absl::Status Begin(const Recipe& recipe);
  absl::Status Add(const GpuSample& sample);
  absl::Status Launch(void* out);
  absl::Status Finish(std::vector<uint32_t>* left);
  uint64_t used_bytes() const { return used_bytes_; }

 private:
  // What the host writes of one burst while the GPU may still read that of the one before.
  struct Half {
    explicit Half(std::pmr::memory_resource* memory) : planner(memory), failed(memory) {}
    gpu::Planner planner;
    std::pmr::vector<uint8_t> failed;  // by image, from the GPU
    cudaEvent_t done = nullptr;
  };

  const int device_;
  const uint64_t memory_bytes_;
  cudaStream_t stream_ = nullptr;
  gpu::Lanes lanes_ = {};
  uint8_t* memory_ = nullptr;
  uint64_t used_bytes_ = 0;
  gpu::PinnedMemory pinned_;
  std::array<Half, 2> halves_ = {Half(&pinned_), Half(&pinned_)};
  static_assert(kMaxBursts == 2);
  size_t next_ = 0, oldest_ = 0;  // halves
};

absl::Status GpuRenderer::Impl::Begin(const Recipe& recipe) {
  HEADRACE_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(device_), "the GPU"));
  return halves_[next_].planner.Begin(recipe);
}

absl::Status GpuRenderer::Impl::Add(const GpuSample& sample) {
  Half& half = halves_[next_];
  HEADRACE_RETURN_IF_ERROR(half.planner.Add(sample));
  const uint64_t bytes = LayOut(half.planner).end;
  if (bytes <= memory_bytes_) return absl::OkStatus();
  half.planner.TakeBack();
  return absl::ResourceExhaustedError("the burst would need " + std::to_string(bytes) + " bytes of GPU memory; " +
                                      std::to_string(memory_bytes_) + " are set aside");
}

absl::Status GpuRenderer::Impl::Launch(void* out) {
  Half& half = halves_[next_];
  const gpu::Layout layout = LayOut(half.planner);
  const gpu::Burst burst = PlaceBurst(half.planner, layout, memory_, out);
  used_bytes_ = layout.end;
  half.failed.resize(burst.num_images);

  HEADRACE_RETURN_IF_ERROR(CudaStatus(static_cast<cudaError_t>(gpu::ClearBurst(burst, stream_)), "the GPU's memory"));
  for (const gpu::Layout::Piece& piece : layout.pieces) {
    if (piece.bytes == 0) continue;
    HEADRACE_RETURN_IF_ERROR(CudaStatus(
        cudaMemcpyAsync(memory_ + piece.at, piece.from, piece.bytes, cudaMemcpyHostToDevice, stream_), "a copy to the GPU"));
  }
  HEADRACE_RETURN_IF_ERROR(CudaStatus(static_cast<cudaError_t>(gpu::LaunchBurst(burst, lanes_)), "a burst of kernels"));
  if (burst.num_images > 0) {
    HEADRACE_RETURN_IF_ERROR(CudaStatus(
        cudaMemcpyAsync(half.failed.data(), burst.failed, burst.num_images, cudaMemcpyDeviceToHost, stream_), "a copy"));
  }
  next_ = (next_ + 1) % halves_.size();
  return CudaStatus(cudaEventRecord(half.done, stream_), "an event");
}

absl::Status GpuRenderer::Impl::Finish(std::vector<uint32_t>* left) {
  Half& half = halves_[oldest_];
  oldest_ = (oldest_ + 1) % halves_.size();
  HEADRACE_RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(half.done), "a batch on the GPU"));
  for (size_t i = 0; i < half.failed.size(); ++i) {
    if (half.failed[i] != 0) left->push_back(half.planner.images[i].sample);
  }
  return absl::OkStatus();
}

GpuRenderer::GpuRenderer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GpuRenderer::~GpuRenderer() = default;

absl::StatusOr<std::unique_ptr<GpuRenderer>> GpuRenderer::Create(int device, uint64_t memory_bytes) {
  auto impl = std::make_unique<Impl>(device, memory_bytes);
  HEADRACE_RETURN_IF_ERROR(impl->Open());
  return std::unique_ptr<GpuRenderer>(new GpuRenderer(std::move(impl)));
}

absl::StatusOr<ByteRange> GpuRenderer::NeededBytes(const ImageInfo& info, const EntryView& entries, const Draw& draw) {
  return gpu::NeededBytes(info, entries, draw);
}

absl::Status GpuRenderer::Begin(const Recipe& recipe) { return impl_->Begin(recipe); }
absl::Status GpuRenderer::Add(const GpuSample& sample) {
  try {
    return impl_->Add(sample);
  } catch (const std::bad_alloc&) {
    return absl::InternalError("no pinned host memory for a batch");
  }
}
absl::Status GpuRenderer::Launch(void* out) { return impl_->Launch(out); }
absl::Status GpuRenderer::Finish(std::vector<uint32_t>* left) { return impl_->Finish(left); }
uint64_t GpuRenderer::used_bytes() const { return impl_->used_bytes(); }

}  // namespace headrace
