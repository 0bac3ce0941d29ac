#include <cuda_runtime.h>

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
  for (int i = 0; i < kMaxTables; ++i) {
    if (image.tables[i] != UINT32_MAX) CopyShared(shared->tables + i, burst.tables + image.tables[i]);
  }
  if (threadIdx.x == 0) FillPlaces(shared);
  __syncthreads();
}

// A block per table.
__global__ void MakeTables(const Burst burst) {
  __shared__ HuffmanCodes codes;
  CopyShared(&codes, burst.codes + blockIdx.x);
  __syncthreads();
  HuffmanTable* table = burst.tables + blockIdx.x;
  for (uint32_t i = threadIdx.x; i < 1 << kLookupBits; i += blockDim.x) table->lookup[i] = LookupEntry(codes, i);
  CopyShared(&table->codes, &codes);
}

// Removes the zeros stuffed behind 0xFF, a warp per segment, 128 bytes a turn.
__global__ void Unstuff(const Burst burst, const Chunk* chunks) {
  const Chunk chunk = chunks[blockIdx.x];
  const Image& image = burst.images[chunk.image];
  if (image.restart_interval > 0) return;
  const uint8_t* data = DataOf(burst, image);
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t last = min(chunk.first + kRunsPerChunk, image.num_runs);
  for (uint32_t index = chunk.first + threadIdx.x / 32; index < last; index += blockDim.x / 32) {
    Run run;
    if (!MakeRun(burst, image, index, &run)) {
      if (lane == 0) burst.lengths[image.first_run + index] = UINT32_MAX;
      continue;
    }
    uint8_t* out = reinterpret_cast<uint8_t*>(burst.words + run.words);
    uint32_t length = 0, before = 0;  // the byte before this turn's
    bool marker = false;
    for (uint32_t at = run.begin; at < run.end; at += 128) {
      const uint32_t mine = at + 4 * lane;
      const uint32_t word = LoadBytes(data, mine);
      const uint32_t left = mine < run.end ? min(run.end - mine, 4u) : 0;
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
      for (uint32_t i = 0; i < kept; ++i) out[length + sum - kept + i] = static_cast<uint8_t>(packed >> (8 * i));
      length += __shfl_sync(0xFFFFFFFF, sum, 31);
    }
    marker = __any_sync(0xFFFFFFFF, marker);
    if (lane < 4) out[length + lane] = 0;
    if (lane == 0) burst.lengths[image.first_run + index] = marker ? UINT32_MAX : length;
  }
}

__global__ void __launch_bounds__(kRunsPerChunk) Entropy(const Burst burst, const Chunk* chunks) {
  __shared__ Shared shared;
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
  const Chunk chunk = chunks[blockIdx.x];
  MakeLastPass(burst, burst.images[chunk.image], chunk.first, threadIdx.x, blockDim.x);
}

}  // namespace

int ClearBurst(const Burst& burst, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const cudaError_t error = cudaMemsetAsync(burst.coefficients, 0, burst.num_blocks * 64 * sizeof(int16_t), on);
  return error != cudaSuccess ? error : cudaMemsetAsync(burst.failed, 0, burst.num_images, on);
}

namespace {

void LaunchGroup(const Burst& burst, const Chunks* tasks, cudaStream_t stream) {
  const auto chunks = [&](Task task) { return tasks[task].chunks; };
  const auto size = [&](Task task) { return tasks[task].size; };
  if (size(kEntropy) > 0) {
    Unstuff<<<size(kEntropy), 256, 0, stream>>>(burst, chunks(kEntropy));
    Entropy<<<size(kEntropy), kRunsPerChunk, 0, stream>>>(burst, chunks(kEntropy));
  }
  if (size(kBlocks) > 0) Idct<<<size(kBlocks), kBlocksPerChunk, 0, stream>>>(burst, chunks(kBlocks));
  if (size(kPixels) > 0) Pixels<<<size(kPixels), 256, 0, stream>>>(burst, chunks(kPixels));
  if (size(kFirstPass) > 0) FirstPass<<<size(kFirstPass), 256, 0, stream>>>(burst, chunks(kFirstPass));
  if (size(kLastPass) > 0) LastPass<<<size(kLastPass), 256, 0, stream>>>(burst, chunks(kLastPass));
}

}  // namespace

int LaunchBurst(const Burst& burst, const Lanes& lanes) {
  const auto main = static_cast<cudaStream_t>(lanes.main), side = static_cast<cudaStream_t>(lanes.side);
  const auto fork = static_cast<cudaEvent_t>(lanes.fork), join = static_cast<cudaEvent_t>(lanes.join);
  (void)cudaGetLastError();  // that of a call that failed without harm is not ours
  if (burst.num_tables > 0) MakeTables<<<burst.num_tables, 128, 0, main>>>(burst);
  cudaError_t error = cudaEventRecord(fork, main);
  if (error == cudaSuccess) error = cudaStreamWaitEvent(side, fork, 0);
  if (error != cudaSuccess) return error;
  LaunchGroup(burst, burst.chunks[0], main);
  LaunchGroup(burst, burst.chunks[1], side);
  error = cudaGetLastError();
  if (error == cudaSuccess) error = cudaEventRecord(join, side);
  return error != cudaSuccess ? error : cudaStreamWaitEvent(main, join, 0);
}

}  // namespace headrace::gpu
