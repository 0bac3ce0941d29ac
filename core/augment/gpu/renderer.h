// Makes batches on a GPU from the same files and entry points as core/augment/render.h does on the CPU, with identical bytes: one
// burst of kernels per batch, on three streams that meet again. What it cannot make (no entry points, several resizes, a crop that reaches outside, data
// that contradicts its entry points) it names, and the CPU makes that. Needs a GPU at run time only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "core/augment/draw.h"
#include "core/augment/gpu/sample.h"
#include "core/augment/recipe.h"
#include "core/base/status.h"
#include "core/decode/segment/segment_decoder.h"

namespace headrace {

// One per stream of batches; not thread-safe.
class GpuRenderer {
 public:
  // UNAVAILABLE without a usable GPU and driver, and says why. `memory_bytes`: of the GPU, at most; taken at once.
  static absl::StatusOr<std::unique_ptr<GpuRenderer>> Create(int device, uint64_t memory_bytes);
  ~GpuRenderer();

  // A burst is begun, gets its images, and is launched; at most kMaxBursts are on their way at a time.
  static constexpr int kMaxBursts = 2;
  // Fewer than kMaxBursts are on their way.
  absl::Status Begin(const Recipe& recipe);
  // As of core/device/gpu.h.
  absl::StatusOr<ByteRange> Plan(const GpuSample& sample);
  absl::StatusOr<uint8_t*> Stage(uint64_t bytes);
  absl::Status AddStaged(uint64_t bytes);
  absl::Status AddMapped(const uint8_t* bytes, uint64_t size);
  // Starts what was added: `out`, GPU memory of the batch, is complete when Finish says so. Does not wait; bytes of files are read by
  // the kernels.
  absl::Status Launch(void* out);
  // Whether the oldest burst is done, if one is on its way.
  bool IsDone() const;
  // Waits for the oldest burst, asleep. `left` gets the places of the images whose data contradicts their entry points: what is
  // there is anything.
  absl::Status Finish(std::vector<uint32_t>* left);

  // Bytes of the GPU's memory that the burst launched last took.
  uint64_t used_bytes() const;

 private:
  class Impl;
  explicit GpuRenderer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace
