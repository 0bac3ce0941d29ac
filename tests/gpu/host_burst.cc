#include "tests/gpu/host_burst.h"

#include <algorithm>
#include <memory>

#include "core/augment/gpu/entropy.h"
#include "core/augment/gpu/pixels.h"

namespace headrace::testing {
namespace {

using namespace gpu;  // NOLINT: everything here is of it

// Returns its length without stuffed zeros, as the kernel leaves it.
uint32_t UnstuffRun(const Burst& burst, const Image& image, uint32_t index) {
  Run run;
  if (!MakeRun(burst, image, index, &run)) return UINT32_MAX;
  uint8_t* out = reinterpret_cast<uint8_t*>(burst.words + run.words);
  uint32_t length = 0, previous = 0;
  bool marker = false;
  if (image.restart_interval > 0) {
    std::copy_n(DataOf(burst, image) + run.begin, run.end - run.begin, out);
    return run.end - run.begin;
  }
  for (uint32_t at = run.begin; at < run.end; at += 4) {
    const uint32_t size = std::min(run.end - at, 4u);
    uint32_t word = 0, packed;
    std::memcpy(&word, DataOf(burst, image) + at, size);
    const uint32_t kept = UnstuffWord(word, size, previous, &packed, &marker);
    for (uint32_t i = 0; i < kept; ++i) out[length++] = static_cast<uint8_t>(packed >> (8 * i));
    previous = word >> 24;
  }
  std::fill_n(out + length, 4, uint8_t{0});
  return marker ? UINT32_MAX : length;
}

bool IsDamaged(const Burst& burst, const Shared& shared, uint32_t index) {
  Run run;
  const bool agrees = MakeRun(burst, shared.image, index, &run);
  if (shared.image.restart_interval > 0) return !agrees || WalkParts(burst, shared, run) == kDamaged;
  const uint32_t length = burst.lengths[shared.image.first_run + index];
  Walk<WordReader> walk = WalkWords(burst, shared, run);  // as the kernel has it, before it knows
  if (length == UINT32_MAX) return true;
  Outcome outcome = kGoesOn;
  while (outcome == kGoesOn) outcome = walk.Step();
  return outcome == kDamaged || !EndsRight(shared.image, run, length, &walk);
}

template <class Work>
void ForEach(const Burst& burst, const Chunks& chunks, const Work& work) {
  for (uint32_t i = 0; i < chunks.size; ++i) work(burst.images[chunks.chunks[i].image], chunks.chunks[i]);
}

void RunGroup(const Burst& burst, const Chunks* tasks) {
  ForEach(burst, tasks[kEntropy], [&](const Image& image, const Chunk& chunk) {
    for (uint32_t i = chunk.first; i < std::min(chunk.first + kRunsPerChunk, image.num_runs); ++i) {
      burst.lengths[image.first_run + i] = UnstuffRun(burst, image, i);
    }
  });
  const auto shared = std::make_unique<Shared>();
  ForEach(burst, tasks[kEntropy], [&](const Image& image, const Chunk& chunk) {
    shared->image = image;
    for (uint32_t i = 0; i < image.num_tables; ++i) shared->tables[i] = burst.tables[image.tables[i]];
    std::copy_n(burst.natural, 64, shared->natural);
    FillPlaces(shared.get());
    for (uint32_t i = chunk.first; i < std::min(chunk.first + kRunsPerChunk, image.num_runs); ++i) {
      if (IsDamaged(burst, *shared, i)) burst.failed[chunk.image] = 1;
    }
  });
  ForEach(burst, tasks[kBlocks], [&](const Image& image, const Chunk& chunk) {
    for (uint32_t i = chunk.first; i < std::min(chunk.first + kBlocksPerChunk, image.num_blocks); ++i) MakeBlock(burst, image, i);
  });
  ForEach(burst, tasks[kPixels], [&](const Image& image, const Chunk& chunk) { MakePixels(burst, image, chunk.first, 0, 1); });
  ForEach(burst, tasks[kFirstPass], [&](const Image& image, const Chunk& chunk) { MakeFirstPass(burst, image, chunk.first, 0, 1); });
  ForEach(burst, tasks[kLastPass], [&](const Image& image, const Chunk& chunk) { MakeLastPass(burst, image, burst.values, chunk.first, 0, 1); });
}

}  // namespace

void RunBurst(const Burst& burst) {
  std::fill_n(burst.coefficients, burst.num_blocks * 64, int16_t{0});
  std::fill_n(burst.failed, burst.num_images, uint8_t{0});
  for (uint32_t table = 0; table < burst.num_tables; ++table) {
    HuffmanTable& made = burst.tables[table];
    MakeCodes(burst.specs[table], 0, 1, &made.codes);
    for (uint32_t i = 0; i < 1 << kLookupBits; ++i) made.lookup[i] = LookupEntry(made.codes, i);
  }
  for (uint32_t i = 0; i < burst.num_images; ++i) {
    if (!EndsAsItMust(burst, burst.images[i])) burst.failed[i] = 1;
    for (const Axis& axis : {burst.images[i].horizontal, burst.images[i].vertical}) {
      for (uint32_t output = 0; axis.taps > 0 && output < axis.outputs; ++output) MakeOutput(burst, axis, output);
    }
  }
  for (const Chunks(&tasks)[kTasks] : burst.chunks) RunGroup(burst, tasks);
}

}  // namespace headrace::testing
