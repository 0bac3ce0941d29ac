#include "core/augment/gpu/renderer.h"

#include <cuda_runtime_api.h>

#include <array>
#include <bit>
#include <new>
#include <type_traits>
#include <utility>

#include "core/augment/pack.h"
#include "core/decode/image_decoder.h"
#include "core/augment/gpu/kernels.h"
#include "core/augment/gpu/planner.h"

namespace headrace {
namespace {

constexpr uint64_t kAlignment = 256;
constexpr size_t kValues = 3 * 256;

uint64_t RoundUp(uint64_t value) { return (value + kAlignment - 1) / kAlignment * kAlignment; }

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

// The bits of every byte's element, per channel.
std::array<uint32_t, kValues> ValuesOf(const PackPlan& plan) {
  std::array<uint32_t, kValues> values;
  for (size_t c = 0; c < 3; ++c) {
    for (size_t i = 0; i < 256; ++i) {
      uint32_t& value = values[256 * c + i];
      switch (plan.dtype) {
        case DType::kUInt8:
          value = static_cast<uint32_t>(i);
          break;
        case DType::kFloat32:
          value = std::bit_cast<uint32_t>(plan.float32[c][i]);
          break;
        default:
          value = plan.float16[c][i];
      }
    }
  }
  return values;
}

gpu::Element ElementOf(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
      return gpu::Element::kUInt8;
    case DType::kFloat32:
      return gpu::Element::kFloat32;
    default:
      return gpu::Element::kBits16;
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
    gpu::Planner planner;
    gpu::PinnedVector<uint32_t> values;
    gpu::PinnedVector<uint8_t> failed;  // by image, from the GPU
    cudaEvent_t done = nullptr;
    gpu::Burst burst;  // of the numbers only what belongs to the recipe, until it is launched
  };
  // A part of the burst that the host brings.
  struct Piece {
    const void* from;
    uint64_t bytes, at;
  };
  // All of a burst lies one behind the other in the GPU's memory.
  struct Layout {
    std::array<Piece, 7 + gpu::kGroups * gpu::kTasks> pieces;
    uint64_t failed, lengths, words, coefficients, planes, end;
  };
  static Layout LayOut(const Half& half);

  const int device_;
  const uint64_t memory_bytes_;
  cudaStream_t stream_ = nullptr;
  gpu::Lanes lanes_ = {};
  uint8_t* memory_ = nullptr;
  uint64_t used_bytes_ = 0;
  std::array<Half, kMaxBursts> halves_;
  size_t next_ = 0, oldest_ = 0;  // halves
};

absl::Status GpuRenderer::Impl::Begin(const Recipe& recipe) {
  HEADRACE_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(device_), "the GPU"));
  Half& half = halves_[next_];
  half.planner.Begin();
  HEADRACE_ASSIGN_OR_RETURN(const auto size, recipe.OutputSize());
  const std::array<uint32_t, kValues> values = ValuesOf(MakePackPlan(recipe));
  half.values.assign(values.begin(), values.end());
  half.burst = {};
  half.burst.element = ElementOf(recipe.dtype);
  half.burst.channels_last = recipe.memory_format == MemoryFormat::kChannelsLast;
  half.burst.out_height = static_cast<uint32_t>(size[0]);
  half.burst.out_width = static_cast<uint32_t>(size[1]);
  return absl::OkStatus();
}

absl::Status GpuRenderer::Impl::Add(const GpuSample& sample) {
  Half& half = halves_[next_];
  HEADRACE_RETURN_IF_ERROR(half.planner.Add(sample));
  const uint64_t bytes = LayOut(half).end;
  if (bytes <= memory_bytes_) return absl::OkStatus();
  half.planner.TakeBack();
  return absl::ResourceExhaustedError("the burst would need " + std::to_string(bytes) + " bytes of GPU memory; " +
                                      std::to_string(memory_bytes_) + " are set aside");
}

GpuRenderer::Impl::Layout GpuRenderer::Impl::LayOut(const Half& half) {
  const gpu::Planner& planner = half.planner;
  Layout layout;
  uint64_t end = 0;
  Piece* next = layout.pieces.data();
  const auto bring = [&](const auto& values) {
    const uint64_t bytes = values.size() * sizeof(values[0]);
    *next++ = {values.data(), bytes, end};
    end = RoundUp(end + bytes);
  };
  bring(planner.images);
  bring(planner.runs);
  bring(planner.tables);
  bring(planner.quant);
  bring(planner.numbers);
  for (const auto& group : planner.chunks) {
    for (const auto& list : group) bring(list);
  }
  bring(half.values);
  bring(planner.data);
  const auto take = [&](uint64_t bytes) { return std::exchange(end, RoundUp(end + bytes)); };
  layout.failed = take(planner.images.size());
  layout.lengths = take(planner.runs.size() * sizeof(uint32_t));
  layout.words = take(planner.num_words * sizeof(uint32_t));
  layout.coefficients = take(planner.num_blocks * 64 * sizeof(int16_t));
  layout.planes = take(planner.num_samples);
  layout.end = end;
  return layout;
}

absl::Status GpuRenderer::Impl::Launch(void* out) {
  Half& half = halves_[next_];
  const gpu::Planner& planner = half.planner;
  const Layout layout = LayOut(half);
  used_bytes_ = layout.end;
  half.failed.resize(planner.images.size());

  gpu::Burst& burst = half.burst;
  const Piece* next = layout.pieces.data();
  const auto take = [&](auto* member) { *member = reinterpret_cast<std::remove_pointer_t<decltype(member)>>(memory_ + (next++)->at); };
  take(&burst.images);
  take(&burst.runs);
  take(&burst.tables);
  take(&burst.quant);
  take(&burst.numbers);
  for (size_t group = 0; group < gpu::kGroups; ++group) {
    for (size_t task = 0; task < gpu::kTasks; ++task) {
      take(&burst.chunks[group][task].chunks);
      burst.chunks[group][task].size = static_cast<uint32_t>(planner.chunks[group][task].size());
    }
  }
  take(&burst.values);
  take(&burst.data);
  burst.num_blocks = planner.num_blocks;
  burst.num_images = static_cast<uint32_t>(planner.images.size());
  burst.failed = memory_ + layout.failed;
  burst.lengths = reinterpret_cast<uint32_t*>(memory_ + layout.lengths);
  burst.words = reinterpret_cast<uint32_t*>(memory_ + layout.words);
  burst.coefficients = reinterpret_cast<int16_t*>(memory_ + layout.coefficients);
  burst.samples = memory_ + layout.planes;
  burst.out = out;

  HEADRACE_RETURN_IF_ERROR(CudaStatus(static_cast<cudaError_t>(gpu::ClearBurst(burst, stream_)), "the GPU's memory"));
  for (const Piece& piece : layout.pieces) {
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
  std::vector<Stage> stages;
  HEADRACE_ASSIGN_OR_RETURN(const gpu::Steps steps, gpu::PlanForGpu(info, draw, &stages));
  return SegmentDecoder::NeededBytes(entries, StoredRegion(steps.source, info));
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
