#include <cuda_runtime.h>

#include <cstddef>

#include "core/augment/gpu/entropy.h"
#include "core/augment/gpu/kernels.h"
#include "core/augment/gpu/pixels.h"

// From entry points to elements: one thread decodes one segment; then one thread makes one block, one pixel, one output of a pass.
// What a thread does, entropy.h and pixels.h say; here is how the threads share their work.

namespace headrace::gpu {
namespace {

template <typename T>
__device__ void CopyShared(T* to, const T* from) {
  for (uint32_t i = threadIdx.x; i < sizeof(T) / 4; i += blockDim.x) {
    reinterpret_cast<uint32_t*>(to)[i] = reinterpret_cast<const uint32_t*>(from)[i];
  }
}

__device__ void Fill(const Burst& burst, const Chunk& chunk, Shared* shared) {
  CopyShared(&shared->image, burst.images + chunk.image);
  if (threadIdx.x < 64) shared->natural[threadIdx.x] = burst.natural[threadIdx.x];
  __syncthreads();
  const Image& image = shared->image;
  for (uint32_t i = 0; i < image.num_tables; ++i) CopyShared(shared->tables + i, burst.tables + image.tables[i]);
  if (threadIdx.x == 0) FillPlaces(shared);
  __syncthreads();
}

// Percent of a multiprocessor's memory that Entropy's blocks share, the rest being its cache: half of it holds ten blocks.
constexpr int kEntropyCarveout = 50;
constexpr uint32_t kFetchThreads = 128, kFetchBlocks = 264;  // two a multiprocessor of an H200
constexpr uint32_t kRunsPerWarp = 4;
constexpr uint32_t kLoads = 4;  // words of a thread on their way
constexpr size_t kMaxPieces = 32;
constexpr int kBringBlocks = 64;
struct Brought {
  BroughtPiece pieces[kMaxPieces];
};

// A kernel rather than the copy engine, so that no burst waits for that one.
__global__ void Bring(const Brought brought, uint32_t count) {
  const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
  for (uint32_t i = 0; i < count; ++i) {
    const BroughtPiece& piece = brought.pieces[i];
    const uint64_t fours = piece.bytes / 16, words = piece.bytes / 4;
    for (uint64_t k = thread; k < fours; k += threads) static_cast<uint4*>(piece.to)[k] = static_cast<const uint4*>(piece.from)[k];
    for (uint64_t k = 4 * fours + thread; k < words; k += threads) {
      static_cast<uint32_t*>(piece.to)[k] = static_cast<const uint32_t*>(piece.from)[k];
    }
  }
}

// A block per table, and two per image for its axes.
__global__ void Prepare(const Burst burst) {
  if (blockIdx.x >= burst.num_tables) {
    const uint32_t number = blockIdx.x - burst.num_tables;
    const Image& image = burst.images[number / 2];
    if (number % 2 == 0 && threadIdx.x == 0 && !EndsAsItMust(burst, image)) burst.failed[number / 2] = 1;
    const Axis axis = number % 2 == 0 ? image.horizontal : image.vertical;
    if (axis.taps == 0 || axis.kernel == AxisKernel::kBrought) return;
    for (uint32_t i = threadIdx.x; i < axis.outputs; i += blockDim.x) MakeOutput(burst, axis, i);
    return;
  }
  __shared__ HuffmanCodes codes;
  __shared__ HuffmanSymbols spec;
  CopyShared(&spec, burst.specs + blockIdx.x);
  __syncthreads();
  MakeCodes(spec, threadIdx.x, blockDim.x, &codes);
  __syncthreads();
  HuffmanTable* table = burst.tables + blockIdx.x;
  for (uint32_t i = threadIdx.x; i < 1 << kLookupBits; i += blockDim.x) table->lookup[i] = LookupEntry(codes, i);
  CopyShared(&table->codes, &codes);
}

// Words of a segment's 128 bytes, aligned; zeros behind its last.
__device__ uint32_t LoadWord(const uint32_t* words, uint32_t num_words, uint32_t number) { return number < num_words ? words[number] : 0; }

// Fetches a segment from the host's memory and removes the zeros stuffed behind 0xFF, a warp's work; of images with restart markers
// all bytes stay.
__device__ void UnstuffRun(const Burst& burst, const Image& image, uint32_t index, uint32_t lane) {
  Run run;
  if (!MakeRun(burst, image, index, &run)) {
    if (lane == 0) burst.lengths[image.first_run + index] = UINT32_MAX;
    return;
  }
  uint32_t* const out_words = burst.words + run.words;
  uint8_t* const out = reinterpret_cast<uint8_t*>(out_words);
  // Aligned words that hold bytes of the segment and no others, and how far it lies behind their beginning.
  const uint64_t address = reinterpret_cast<uint64_t>(DataOf(burst, image) + run.begin);
  const uint32_t* const words = reinterpret_cast<const uint32_t*>(address & ~uint64_t{3});
  const uint32_t skipped = address & 3, size = run.end - run.begin, num_words = (skipped + size + 3) / 4;
  uint32_t length = 0, before = 0;  // the byte before these 128
  bool marker = false;
  for (uint32_t first = 0; first < size; first += 128 * kLoads) {
    uint32_t loaded[kLoads + 1];  // all on their way at once
    #pragma unroll
    for (uint32_t i = 0; i <= kLoads; ++i) loaded[i] = LoadWord(words, num_words, first / 4 + 32 * i + (i < kLoads ? lane : 0));
    #pragma unroll
    for (uint32_t i = 0; i < kLoads; ++i) {
      const uint32_t at = first + 128 * i;
      if (at >= size) break;
      uint32_t next = __shfl_down_sync(0xFFFFFFFF, loaded[i], 1);
      const uint32_t first_ahead = __shfl_sync(0xFFFFFFFF, loaded[i + 1], 0);
      if (lane == 31) next = first_ahead;
      const uint32_t word = __funnelshift_r(loaded[i], next, 8 * skipped);
      const uint32_t behind = at + 4 * lane, left = behind < size ? min(size - behind, 4u) : 0;
      if (image.restart_interval > 0) {
        if (left > 0) out_words[at / 4 + lane] = word;
        continue;
      }
      uint32_t previous = __shfl_up_sync(0xFFFFFFFF, word >> 24, 1);
      if (lane == 0) previous = before;
      before = __shfl_sync(0xFFFFFFFF, word >> 24, 31);
      uint32_t packed;
      const uint32_t kept = UnstuffWord(word, left, previous, &packed, &marker);
      uint32_t sum = kept;
      for (uint32_t step = 1; step < 32; step *= 2) {
        const uint32_t other = __shfl_up_sync(0xFFFFFFFF, sum, step);
        if (lane >= step) sum += other;
      }
      for (uint32_t k = 0; k < kept; ++k) out[length + sum - kept + k] = static_cast<uint8_t>(packed >> (8 * k));
      length += __shfl_sync(0xFFFFFFFF, sum, 31);
    }
  }
  if (image.restart_interval > 0) return;
  marker = __any_sync(0xFFFFFFFF, marker);
  if (lane < 4) out[length + lane] = 0;
  if (lane == 0) burst.lengths[image.first_run + index] = marker ? UINT32_MAX : length;
}

// Few threads with much on its way: the bus is what they wait for, and other kernels find room meanwhile. A warp takes some segments of
// a chunk.
__global__ void __launch_bounds__(kFetchThreads) Unstuff(const Burst burst, const Chunk* chunks, uint32_t num_chunks) {
  constexpr uint32_t kParts = kRunsPerChunk / kRunsPerWarp;
  const uint32_t warps = gridDim.x * (kFetchThreads / 32);
  for (uint32_t i = blockIdx.x * (kFetchThreads / 32) + threadIdx.x / 32; i < num_chunks * kParts; i += warps) {
    const Chunk chunk = chunks[i / kParts];
    const Image& image = burst.images[chunk.image];
    const uint32_t first = chunk.first + i % kParts * kRunsPerWarp, last = min(first + kRunsPerWarp, image.num_runs);
    for (uint32_t index = first; index < last; ++index) UnstuffRun(burst, image, index, threadIdx.x % 32);
  }
}

__global__ void __launch_bounds__(kRunsPerChunk) Entropy(const Burst burst, const Chunk* chunks) {
  extern __shared__ uint4 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Chunk chunk = chunks[blockIdx.x];
  Fill(burst, chunk, &shared);
  const Image& image = shared.image;
  const uint32_t index = chunk.first + threadIdx.x;
  const bool is_run = index < image.num_runs;
  const uint32_t number = min(index, image.num_runs - 1);
  Run run;
  bool damaged = !MakeRun(burst, image, number, &run);
  if (image.restart_interval > 0) {
    damaged = is_run && (damaged || WalkParts(burst, shared, run) == kDamaged);
  } else {
    const uint32_t length = burst.lengths[image.first_run + number];
    damaged = is_run && length == UINT32_MAX;
    Walk<WordReader> walk = WalkWords(burst, shared, run);
    Outcome outcome = is_run && !damaged ? kGoesOn : kDone;
    while (outcome == kGoesOn) outcome = walk.Step();
    // Made again: kept, it would take registers from the walk.
    MakeRun(burst, image, number, &run);
    damaged |= outcome == kDamaged || (is_run && !damaged && !EndsRight(image, run, length, &walk));
  }
  if (damaged) burst.failed[chunk.image] = 1;
}

__global__ void __launch_bounds__(kBlocksPerChunk) Idct(const Burst burst, const Chunk* chunks) {
  const Chunk chunk = chunks[blockIdx.x];
  const Image& image = burst.images[chunk.image];
  const uint32_t block = chunk.first + threadIdx.x;
  if (block < image.num_blocks) MakeBlock(burst, image, block);
}

__global__ void Pixels(const Burst burst, const Chunk* chunks) {
  __shared__ Image image;
  const Chunk chunk = chunks[blockIdx.x];
  CopyShared(&image, burst.images + chunk.image);
  __syncthreads();
  MakePixels(burst, image, chunk.first, threadIdx.x, blockDim.x);
}

__global__ void FirstPass(const Burst burst, const Chunk* chunks) {
  const Chunk chunk = chunks[blockIdx.x];
  MakeFirstPass(burst, burst.images[chunk.image], chunk.first, threadIdx.x, blockDim.x);
}

__global__ void LastPass(const Burst burst, const Chunk* chunks) {
  __shared__ uint32_t values[3 * 256];
  const Chunk chunk = chunks[blockIdx.x];
  for (uint32_t i = threadIdx.x; i < 3 * 256; i += blockDim.x) values[i] = burst.values[i];
  __syncthreads();
  MakeLastPass(burst, burst.images[chunk.image], values, chunk.first, threadIdx.x, blockDim.x);
}

}  // namespace

int SetUpKernels() { return cudaFuncSetAttribute(Entropy, cudaFuncAttributePreferredSharedMemoryCarveout, kEntropyCarveout); }

int BringBurst(const BroughtPiece* pieces, size_t count, void* stream) {
  Brought brought = {};
  if (count > kMaxPieces) return cudaErrorInvalidValue;
  for (size_t i = 0; i < count; ++i) brought.pieces[i] = pieces[i];
  Bring<<<kBringBlocks, 256, 0, static_cast<cudaStream_t>(stream)>>>(brought, static_cast<uint32_t>(count));
  return cudaGetLastError();
}

int ClearBurst(const Burst& burst, void* stream) {
  return cudaMemsetAsync(burst.coefficients, 0, burst.num_blocks * 64 * sizeof(int16_t), static_cast<cudaStream_t>(stream));
}

namespace {

void LaunchFetching(const Burst& burst, const Chunks& chunks, cudaStream_t stream) {
  if (chunks.size == 0) return;
  const uint32_t blocks = min(chunks.size * (kRunsPerChunk / kRunsPerWarp) / (kFetchThreads / 32), kFetchBlocks);
  Unstuff<<<blocks, kFetchThreads, 0, stream>>>(burst, chunks.chunks, chunks.size);
}

void LaunchRest(const Burst& burst, const Chunks* tasks, cudaStream_t stream) {
  const auto chunks = [&](Task task) { return tasks[task].chunks; };
  const auto size = [&](Task task) { return tasks[task].size; };
  if (size(kEntropy) > 0) {
    const size_t shared_bytes = offsetof(Shared, tables) + burst.most_tables * sizeof(HuffmanTable);
    Entropy<<<size(kEntropy), kRunsPerChunk, shared_bytes, stream>>>(burst, chunks(kEntropy));
  }
  if (size(kBlocks) > 0) Idct<<<size(kBlocks), kBlocksPerChunk, 0, stream>>>(burst, chunks(kBlocks));
  if (size(kPixels) > 0) Pixels<<<size(kPixels), 256, 0, stream>>>(burst, chunks(kPixels));
  if (size(kFirstPass) > 0) FirstPass<<<size(kFirstPass), 256, 0, stream>>>(burst, chunks(kFirstPass));
  if (size(kLastPass) > 0) LastPass<<<size(kLastPass), 256, 0, stream>>>(burst, chunks(kLastPass));
}

}  // namespace

int LaunchBurst(const Burst& burst, const Lanes& lanes) {
  const auto stream = [&](size_t group) { return static_cast<cudaStream_t>(lanes.streams[group]); };
  const auto fork = static_cast<cudaEvent_t>(lanes.fork);
  (void)cudaGetLastError();  // that of a call that failed without harm is not ours
  if (burst.num_images > 0) Prepare<<<burst.num_tables + 2 * burst.num_images, 128, 0, stream(0)>>>(burst);
  cudaError_t error = cudaEventRecord(fork, stream(0));
  for (size_t group = 1; group < kGroups && error == cudaSuccess; ++group) error = cudaStreamWaitEvent(stream(group), fork, 0);
  if (error != cudaSuccess) return error;
  // A group's bytes before those of the next: all at once would keep all of them waiting for the bus.
  for (size_t group = 0; group < kGroups && error == cudaSuccess; ++group) {
    LaunchFetching(burst, burst.chunks[group][kEntropy], stream(group));
    if (group + 1 == kGroups) break;
    const auto fetched = static_cast<cudaEvent_t>(lanes.join[group]);
    error = cudaEventRecord(fetched, stream(group));
    if (error == cudaSuccess) error = cudaStreamWaitEvent(stream(group + 1), fetched, 0);
  }
  for (size_t group = 0; group < kGroups; ++group) LaunchRest(burst, burst.chunks[group], stream(group));
  if (error == cudaSuccess) error = cudaGetLastError();
  for (size_t group = 1; group < kGroups && error == cudaSuccess; ++group) {
    const auto join = static_cast<cudaEvent_t>(lanes.join[group]);
    error = cudaEventRecord(join, stream(group));
    if (error == cudaSuccess) error = cudaStreamWaitEvent(stream(0), join, 0);
  }
  return error;
}

}  // namespace headrace::gpu
