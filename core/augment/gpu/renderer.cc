#include "core/augment/gpu/renderer.h"

#include <cuda_runtime_api.h>

#include <array>
#include <bit>
#include <new>
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
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  absl::Status Open() {
    HEADRACE_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(device_), "no usable GPU"));
    HEADRACE_RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "no usable GPU"));
    HEADRACE_RETURN_IF_ERROR(CudaStatus(cudaMalloc(reinterpret_cast<void**>(&memory_), memory_bytes_),
                                        ("GPU memory of " + std::to_string(memory_bytes_) + " bytes").c_str()));
    for (Half& half : halves_) {
      HEADRACE_RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(&half.done, cudaEventDisableTiming), "an event"));
    }
    return absl::OkStatus();
  }

  absl::Status Start(absl::Span<const Sample> samples, const Recipe& recipe, void* out, std::vector<uint32_t>* left);
  absl::Status Finish(std::vector<uint32_t>* left);
  uint64_t used_bytes() const { return used_bytes_; }

 private:
  // What the host writes of one batch while the GPU may still read that of the one before.
  struct Half {
    gpu::Planner planner;
    gpu::PinnedVector<uint32_t> values;
    gpu::PinnedVector<uint8_t> failed;  // by image, from the GPU
    cudaEvent_t done = nullptr;
  };

  const int device_;
  const uint64_t memory_bytes_;
  cudaStream_t stream_ = nullptr;
  uint8_t* memory_ = nullptr;
  uint64_t used_bytes_ = 0;
  std::array<Half, 2> halves_;
  size_t half_ = 0;
};

absl::Status GpuRenderer::Impl::Start(absl::Span<const Sample> samples, const Recipe& recipe, void* out,
                                      std::vector<uint32_t>* left) {
  HEADRACE_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(device_), "the GPU"));
  half_ ^= 1;
  Half& half = halves_[half_];
  HEADRACE_RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(half.done), "an earlier batch"));
  gpu::Planner& planner = half.planner;
  planner.Begin();
  for (const Sample& sample : samples) {
    if (!planner.Add(sample).ok()) left->push_back(sample.place);
  }
  HEADRACE_ASSIGN_OR_RETURN(const auto size, recipe.OutputSize());
  const std::array<uint32_t, kValues> values = ValuesOf(MakePackPlan(recipe));
  half.values.assign(values.begin(), values.end());
  half.failed.resize(planner.images.size());

  // All of it lies one behind the other in the GPU's memory.
  uint64_t used = 0;
  struct Piece {
    const void* from;
    uint64_t bytes, at;
  };
  std::array<Piece, 12> pieces;
  size_t num_pieces = 0;
  const auto bring = [&](const auto& values_of) -> size_t {
    const uint64_t bytes = values_of.size() * sizeof(values_of[0]);
    pieces[num_pieces] = {values_of.data(), bytes, used};
    used = RoundUp(used + bytes);
    return num_pieces++;
  };
  const size_t images = bring(planner.images), runs = bring(planner.runs), tables = bring(planner.tables),
               quant = bring(planner.quant), numbers = bring(planner.numbers), entropy = bring(planner.entropy_chunks),
               blocks = bring(planner.block_chunks), pixels = bring(planner.pixel_chunks),
               first_pass = bring(planner.first_pass_chunks), last_pass = bring(planner.last_pass_chunks),
               elements = bring(half.values), data = bring(planner.data);
  const auto take = [&](uint64_t bytes) { return std::exchange(used, RoundUp(used + bytes)); };
  const uint64_t failed = take(planner.images.size()), lengths = take(planner.runs.size() * sizeof(uint32_t)),
                 words = take(planner.num_words * sizeof(uint32_t)), coefficients = take(planner.num_blocks * 64 * sizeof(int16_t)),
                 planes = take(planner.num_samples);
  used_bytes_ = used;
  if (used_bytes_ > memory_bytes_) {
    return absl::ResourceExhaustedError("the batch needs " + std::to_string(used_bytes_) + " bytes of GPU memory; " +
                                        std::to_string(memory_bytes_) + " are set aside");
  }

  gpu::Burst burst = {};
  const auto at = [&](size_t piece) { return memory_ + pieces[piece].at; };
  burst.data = at(data);
  burst.images = reinterpret_cast<const gpu::Image*>(at(images));
  burst.runs = reinterpret_cast<const gpu::Run*>(at(runs));
  burst.tables = reinterpret_cast<const gpu::HuffmanTable*>(at(tables));
  burst.quant = reinterpret_cast<const uint16_t*>(at(quant));
  burst.numbers = reinterpret_cast<const int32_t*>(at(numbers));
  burst.entropy_chunks = reinterpret_cast<const gpu::Chunk*>(at(entropy));
  burst.block_chunks = reinterpret_cast<const gpu::Chunk*>(at(blocks));
  burst.pixel_chunks = reinterpret_cast<const gpu::Chunk*>(at(pixels));
  burst.first_pass_chunks = reinterpret_cast<const gpu::Chunk*>(at(first_pass));
  burst.last_pass_chunks = reinterpret_cast<const gpu::Chunk*>(at(last_pass));
  burst.values = reinterpret_cast<const uint32_t*>(at(elements));
  const auto count = [](const auto& chunks) { return static_cast<uint32_t>(chunks.size()); };
  burst.num_entropy_chunks = count(planner.entropy_chunks);
  burst.num_block_chunks = count(planner.block_chunks);
  burst.num_pixel_chunks = count(planner.pixel_chunks);
  burst.num_first_pass_chunks = count(planner.first_pass_chunks);
  burst.num_last_pass_chunks = count(planner.last_pass_chunks);
  burst.num_blocks = planner.num_blocks;
  burst.num_images = count(planner.images);
  burst.failed = memory_ + failed;
  burst.lengths = reinterpret_cast<uint32_t*>(memory_ + lengths);
  burst.words = reinterpret_cast<uint32_t*>(memory_ + words);
  burst.coefficients = reinterpret_cast<int16_t*>(memory_ + coefficients);
  burst.samples = memory_ + planes;
  burst.out = out;
  burst.element = ElementOf(recipe.dtype);
  burst.channels_last = recipe.memory_format == MemoryFormat::kChannelsLast;
  burst.out_height = static_cast<uint32_t>(size[0]);
  burst.out_width = static_cast<uint32_t>(size[1]);

  HEADRACE_RETURN_IF_ERROR(CudaStatus(static_cast<cudaError_t>(gpu::ClearBurst(burst, stream_)), "the GPU's memory"));
  for (const Piece& piece : pieces) {
    if (piece.bytes == 0) continue;
    HEADRACE_RETURN_IF_ERROR(CudaStatus(
        cudaMemcpyAsync(memory_ + piece.at, piece.from, piece.bytes, cudaMemcpyHostToDevice, stream_), "a copy to the GPU"));
  }
  HEADRACE_RETURN_IF_ERROR(CudaStatus(static_cast<cudaError_t>(gpu::LaunchBurst(burst, stream_)), "a burst of kernels"));
  if (burst.num_images > 0) {
    HEADRACE_RETURN_IF_ERROR(CudaStatus(
        cudaMemcpyAsync(half.failed.data(), burst.failed, burst.num_images, cudaMemcpyDeviceToHost, stream_), "a copy"));
  }
  return CudaStatus(cudaEventRecord(half.done, stream_), "an event");
}

absl::Status GpuRenderer::Impl::Finish(std::vector<uint32_t>* left) {
  Half& half = halves_[half_];
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

absl::Status GpuRenderer::Start(absl::Span<const Sample> samples, const Recipe& recipe, void* out, std::vector<uint32_t>* left) {
  try {
    return impl_->Start(samples, recipe, out, left);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("no pinned host memory for a batch");
  }
}
absl::Status GpuRenderer::Finish(std::vector<uint32_t>* left) { return impl_->Finish(left); }
uint64_t GpuRenderer::used_bytes() const { return impl_->used_bytes(); }

}  // namespace headrace
