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

constexpr char kNoPinnedMemory[] = "no pinned host memory for a batch";

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
    for (cudaStream_t stream : {bringing_, stream_}) {
      if (stream != nullptr) cudaStreamSynchronize(stream);
    }
    for (Half& half : halves_) {
      for (cudaEvent_t event : {half.brought, half.done}) {
        if (event != nullptr) cudaEventDestroy(event);
      }
    }
    if (memory_ != nullptr) cudaFree(memory_);
    for (void* event : {lanes_.fork, lanes_.join}) {
      if (event != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(event));
    }
    if (lanes_.side != nullptr) cudaStreamDestroy(static_cast<cudaStream_t>(lanes_.side));
    for (cudaStream_t stream : {bringing_, stream_}) {
      if (stream != nullptr) cudaStreamDestroy(stream);
    }
  }

  absl::Status Open() {
    HEADRACE_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(device_), "no usable GPU"));
    HEADRACE_RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "no usable GPU"));
    HEADRACE_RETURN_IF_ERROR(CudaStatus(cudaMalloc(reinterpret_cast<void**>(&memory_), memory_bytes_),
                                        ("GPU memory of " + std::to_string(memory_bytes_) + " bytes").c_str()));
    lanes_.main = stream_;
    for (cudaStream_t* stream : {&bringing_, reinterpret_cast<cudaStream_t*>(&lanes_.side)}) {
      HEADRACE_RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "a stream"));
    }
    for (void** event : {&lanes_.fork, &lanes_.join}) {
      HEADRACE_RETURN_IF_ERROR(
          CudaStatus(cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(event), cudaEventDisableTiming), "an event"));
    }
    const uint64_t brought_bytes = memory_bytes_ / kBroughtShare >> 8 << 8;
    for (Half& half : halves_) {
      half.memory = memory_ + brought_bytes * static_cast<uint64_t>(&half - halves_.data());
      HEADRACE_RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(&half.brought, cudaEventDisableTiming | cudaEventBlockingSync), "an event"));
      HEADRACE_RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(&half.done, cudaEventDisableTiming | cudaEventBlockingSync), "an event"));
    }
    brought_bytes_ = brought_bytes;
    written_bytes_ = memory_bytes_ - brought_bytes * halves_.size();
    return absl::OkStatus();
  }

  absl::Status Begin(const Recipe& recipe);
  gpu::Planner& planner() { return halves_[next_].planner; }
  // What `add` adds stays if it fits.
  template <class AddTo>
  absl::Status Add(const AddTo& add) {
    const absl::Status added = Guarded([&] { return add(&planner()); });
    if (added.ok()) return Keep();
    if (added.message() == kNoPinnedMemory) planner().TakeBack();
    return added;
  }
  absl::Status Keep();
  template <class Call>
  static auto Guarded(const Call& call) -> decltype(call()) {
    try {
      return call();
    } catch (const std::bad_alloc&) {
      return absl::InternalError(kNoPinnedMemory);
    }
  }
  absl::Status Launch(void* out);
  absl::Status Finish(std::vector<uint32_t>* left);
  absl::StatusOr<bool> IsDone();
  uint64_t used_bytes() const { return used_bytes_; }

 private:
  // What the host writes of one burst while the GPU may still read that of the one before.
  struct Half {
    explicit Half(std::pmr::memory_resource* memory) : planner(memory), failed(memory) {}
    gpu::Planner planner;
    std::pmr::vector<uint8_t> failed;  // by image, from the GPU
    uint8_t* memory = nullptr;         // the GPU's, for what is brought
    cudaEvent_t brought = nullptr, done = nullptr;
    gpu::Burst burst = {};
    bool is_bringing = false;          // its kernels are not on their way yet
    std::vector<const void*> from;     // copies
    std::vector<void*> to;
    std::vector<size_t> sizes;
  };
  // Of the memory each half has one part of so many for what is brought: of photos it takes one part of twelve.
  static constexpr uint64_t kBroughtShare = 10;
  absl::Status Bring(const gpu::Layout& layout, Half* half);
  absl::Status LaunchKernels(Half* half);
  // Starts the kernels of bursts whose bytes are there, in their order.
  absl::Status LaunchBrought();

  const int device_;
  const uint64_t memory_bytes_;
  cudaStream_t stream_ = nullptr, bringing_ = nullptr;
  gpu::Lanes lanes_ = {};
  uint8_t* memory_ = nullptr;
  uint64_t brought_bytes_ = 0, written_bytes_ = 0;
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

absl::Status GpuRenderer::Impl::Keep() {
  const gpu::Layout layout = LayOut(planner());
  if (layout.brought_bytes <= brought_bytes_ && layout.written_bytes <= written_bytes_) return absl::OkStatus();
  planner().TakeBack();
  return absl::ResourceExhaustedError("the burst would need " + std::to_string(layout.brought_bytes) + " and " +
                                      std::to_string(layout.written_bytes) + " bytes of GPU memory; " + std::to_string(brought_bytes_) +
                                      " and " + std::to_string(written_bytes_) + " are set aside");
}

// Beside the burst before, which reads the other half's.
absl::Status GpuRenderer::Impl::Bring(const gpu::Layout& layout, Half* half) {
  half->from.clear();
  half->to.clear();
  half->sizes.clear();
  const auto add = [&](const void* from, uint64_t to, uint64_t bytes) {
    if (bytes == 0) return;
    half->from.push_back(from);
    half->to.push_back(half->memory + to);
    half->sizes.push_back(bytes);
  };
  for (const gpu::Layout::Piece& piece : layout.pieces) add(piece.from, piece.at, piece.bytes);
  for (const gpu::Planner::Fetch& fetch : half->planner.fetches) add(fetch.from, layout.mapped + fetch.to, fetch.bytes);
#if CUDART_VERSION >= 13000
  cudaMemcpyAttributes attributes = {};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  size_t first = 0;
  HEADRACE_RETURN_IF_ERROR(CudaStatus(cudaMemcpyBatchAsync(half->to.data(), half->from.data(), half->sizes.data(), half->sizes.size(),
                                                           &attributes, &first, 1, bringing_),
                                      "copies to the GPU"));
#else
  for (size_t i = 0; i < half->sizes.size(); ++i) {
    HEADRACE_RETURN_IF_ERROR(CudaStatus(
        cudaMemcpyAsync(half->to[i], half->from[i], half->sizes[i], cudaMemcpyHostToDevice, bringing_), "a copy to the GPU"));
  }
#endif
  half->is_bringing = true;
  return CudaStatus(cudaEventRecord(half->brought, bringing_), "an event");
}

// Only once its bytes are there: a burst that waits for them on the GPU keeps a trainer's kernels waiting, too.
absl::Status GpuRenderer::Impl::LaunchKernels(Half* half) {
  const gpu::Burst& burst = half->burst;
  half->is_bringing = false;
  HEADRACE_RETURN_IF_ERROR(CudaStatus(static_cast<cudaError_t>(gpu::ClearBurst(burst, stream_)), "the GPU's memory"));
  HEADRACE_RETURN_IF_ERROR(CudaStatus(static_cast<cudaError_t>(gpu::LaunchBurst(burst, lanes_)), "a burst of kernels"));
  if (burst.num_images > 0) {
    HEADRACE_RETURN_IF_ERROR(CudaStatus(
        cudaMemcpyAsync(half->failed.data(), burst.failed, burst.num_images, cudaMemcpyDeviceToHost, stream_), "a copy"));
  }
  return CudaStatus(cudaEventRecord(half->done, stream_), "an event");
}

absl::Status GpuRenderer::Impl::LaunchBrought() {
  for (size_t i = 0; i < halves_.size(); ++i) {
    Half& half = halves_[(oldest_ + i) % halves_.size()];
    if (!half.is_bringing) continue;
    const cudaError_t error = cudaEventQuery(half.brought);
    if (error == cudaErrorNotReady) break;
    HEADRACE_RETURN_IF_ERROR(CudaStatus(error, "copies to the GPU"));
    HEADRACE_RETURN_IF_ERROR(LaunchKernels(&half));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> GpuRenderer::Impl::IsDone() {
  HEADRACE_RETURN_IF_ERROR(LaunchBrought());
  const Half& half = halves_[oldest_];
  return !half.is_bringing && cudaEventQuery(half.done) != cudaErrorNotReady;
}

absl::Status GpuRenderer::Impl::Launch(void* out) {
  Half& half = halves_[next_];
  const gpu::Layout layout = LayOut(half.planner);
  half.burst = PlaceBurst(half.planner, layout, half.memory, memory_ + brought_bytes_ * halves_.size(), out);
  used_bytes_ = layout.brought_bytes + layout.written_bytes;
  half.failed.resize(half.burst.num_images);
  next_ = (next_ + 1) % halves_.size();
  HEADRACE_RETURN_IF_ERROR(Bring(layout, &half));
  return LaunchBrought();  // of the burst before, perhaps
}

absl::Status GpuRenderer::Impl::Finish(std::vector<uint32_t>* left) {
  Half& half = halves_[oldest_];
  if (half.is_bringing) {
    HEADRACE_RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(half.brought), "copies to the GPU"));
    HEADRACE_RETURN_IF_ERROR(LaunchBrought());
  }
  HEADRACE_RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(half.done), "a batch on the GPU"));
  oldest_ = (oldest_ + 1) % halves_.size();
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

absl::Status GpuRenderer::Begin(const Recipe& recipe) {
  return impl_->Guarded([&] { return impl_->Begin(recipe); });
}
absl::StatusOr<ByteRange> GpuRenderer::Plan(const GpuSample& sample) { return impl_->planner().Plan(sample); }
absl::StatusOr<uint8_t*> GpuRenderer::Stage(uint64_t bytes) {
  return impl_->Guarded([&]() -> absl::StatusOr<uint8_t*> { return impl_->planner().Stage(bytes); });
}
absl::Status GpuRenderer::AddStaged(uint64_t bytes) {
  return impl_->Add([&](gpu::Planner* planner) { return planner->AddStaged(bytes); });
}
absl::Status GpuRenderer::AddMapped(const uint8_t* bytes, absl::Span<const uint8_t> tail) {
  return impl_->Add([&](gpu::Planner* planner) { return planner->AddMapped(bytes, tail); });
}
absl::Status GpuRenderer::Launch(void* out) {
  return impl_->Guarded([&] { return impl_->Launch(out); });
}
absl::StatusOr<bool> GpuRenderer::IsDone() { return impl_->IsDone(); }
absl::Status GpuRenderer::Finish(std::vector<uint32_t>* left) { return impl_->Finish(left); }
uint64_t GpuRenderer::used_bytes() const { return impl_->used_bytes(); }

}  // namespace headrace
