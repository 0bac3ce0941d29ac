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

absl::Status CreateEvent(unsigned int flags, void** event) {
  return CudaStatus(cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(event), flags), "an event");
}

void DestroyEvent(void* event) {
  if (event != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(event));
}

}  // namespace

class GpuRenderer::Impl {
 public:
  Impl(int device, uint64_t memory_bytes) : device_(device), memory_bytes_(memory_bytes) {}
  ~Impl() {
    if (stream_ != nullptr) cudaStreamSynchronize(stream_);
    for (Half& half : halves_) DestroyEvent(half.done);
    if (memory_ != nullptr) cudaFree(memory_);
    DestroyEvent(lanes_.fork);
    for (void* event : lanes_.join) DestroyEvent(event);
    for (void* stream : lanes_.streams) {
      if (stream != nullptr) cudaStreamDestroy(static_cast<cudaStream_t>(stream));
    }
  }

  absl::Status Open() {
    HEADRACE_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(device_), "no usable GPU"));
    for (void*& stream : lanes_.streams) {
      HEADRACE_RETURN_IF_ERROR(
          CudaStatus(cudaStreamCreateWithFlags(reinterpret_cast<cudaStream_t*>(&stream), cudaStreamNonBlocking), "no usable GPU"));
    }
    stream_ = static_cast<cudaStream_t>(lanes_.streams[0]);
    HEADRACE_RETURN_IF_ERROR(CudaStatus(static_cast<cudaError_t>(gpu::SetUpKernels()), "no usable GPU"));
    HEADRACE_RETURN_IF_ERROR(CudaStatus(cudaMalloc(reinterpret_cast<void**>(&memory_), memory_bytes_),
                                        ("GPU memory of " + std::to_string(memory_bytes_) + " bytes").c_str()));
    HEADRACE_RETURN_IF_ERROR(CreateEvent(cudaEventDisableTiming, &lanes_.fork));
    for (void*& event : lanes_.join) HEADRACE_RETURN_IF_ERROR(CreateEvent(cudaEventDisableTiming, &event));
    const uint64_t brought_bytes = memory_bytes_ / kBroughtShare >> 8 << 8;
    for (Half& half : halves_) {
      half.memory = memory_ + brought_bytes * static_cast<uint64_t>(&half - halves_.data());
      HEADRACE_RETURN_IF_ERROR(CreateEvent(cudaEventDisableTiming | cudaEventBlockingSync, &half.done));
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
  bool IsDone() const;
  uint64_t used_bytes() const { return used_bytes_; }

 private:
  // What the host writes of one burst while the GPU may still read that of the one before.
  struct Half {
    explicit Half(std::pmr::memory_resource* memory) : planner(memory), failed(memory) {}
    gpu::Planner planner;
    std::pmr::vector<uint8_t> failed;  // by image, from the GPU
    uint8_t* memory = nullptr;         // the GPU's, for what is brought
    void* done = nullptr;              // an event
  };
  // Of the memory each half has one part of so many for what is brought: of photos it takes one part of 150, of thumbnails of 10.
  static constexpr uint64_t kBroughtShare = 16;
  // Of the host's pinned memory each half may take for staged bytes one part of so many of the GPU's: photos of 75 kB take a thirteenth.
  static constexpr uint64_t kStagedShare = 8;

  const int device_;
  const uint64_t memory_bytes_;
  cudaStream_t stream_ = nullptr;  // the first of them
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
  const uint64_t staged_bytes = planner().staged.size();
  if (layout.brought_bytes <= brought_bytes_ && layout.written_bytes <= written_bytes_ && staged_bytes <= memory_bytes_ / kStagedShare) {
    return absl::OkStatus();
  }
  planner().TakeBack();
  return absl::ResourceExhaustedError("the burst would need " + std::to_string(layout.brought_bytes) + " and " +
                                      std::to_string(layout.written_bytes) + " bytes of GPU memory and " + std::to_string(staged_bytes) +
                                      " of pinned memory; " + std::to_string(brought_bytes_) + " and " + std::to_string(written_bytes_) +
                                      ", and " + std::to_string(memory_bytes_ / kStagedShare) + ", are set aside");
}

// Kernels only, all at once: a burst that waits for a copy keeps the GPU's turn from a trainer's kernels, and one that comes in pieces
// waits for a turn with each.
absl::Status GpuRenderer::Impl::Launch(void* out) {
  Half& half = halves_[next_];
  const gpu::Layout layout = LayOut(half.planner);
  used_bytes_ = layout.brought_bytes + layout.written_bytes;
  half.failed.assign(half.planner.images.size(), 0);
  const gpu::Burst burst =
      PlaceBurst(half.planner, layout, half.memory, memory_ + brought_bytes_ * halves_.size(), half.failed.data(), out);
  std::array<gpu::BroughtPiece, gpu::Layout::kPieces> pieces;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const gpu::Layout::Piece& piece = layout.pieces[i];
    pieces[i] = {piece.from, half.memory + piece.at, piece.bytes};
  }
  next_ = (next_ + 1) % halves_.size();
  int error = gpu::BringBurst(pieces.data(), pieces.size(), stream_);
  if (error == cudaSuccess) error = gpu::ClearBurst(burst, stream_);
  if (error == cudaSuccess) error = gpu::LaunchBurst(burst, lanes_);
  if (error == cudaSuccess) error = cudaEventRecord(static_cast<cudaEvent_t>(half.done), stream_);
  return CudaStatus(static_cast<cudaError_t>(error), "a burst of kernels");
}

bool GpuRenderer::Impl::IsDone() const { return cudaEventQuery(static_cast<cudaEvent_t>(halves_[oldest_].done)) != cudaErrorNotReady; }

absl::Status GpuRenderer::Impl::Finish(std::vector<uint32_t>* left) {
  Half& half = halves_[oldest_];
  HEADRACE_RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(static_cast<cudaEvent_t>(half.done)), "a batch on the GPU"));
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
absl::Status GpuRenderer::AddMapped(const uint8_t* bytes, uint64_t size) {
  return impl_->Add([&](gpu::Planner* planner) { return planner->AddMapped(bytes, size); });
}
absl::Status GpuRenderer::Launch(void* out) {
  return impl_->Guarded([&] { return impl_->Launch(out); });
}
bool GpuRenderer::IsDone() const { return impl_->IsDone(); }
absl::Status GpuRenderer::Finish(std::vector<uint32_t>* left) { return impl_->Finish(left); }
uint64_t GpuRenderer::used_bytes() const { return impl_->used_bytes(); }

}  // namespace headrace
