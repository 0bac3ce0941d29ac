// Makes batches on a GPU from the same files and entry points as core/augment/render.h does on the CPU, with identical bytes: one
// burst of kernels per batch on one stream. What it cannot make (no entry points, several resizes, a crop that reaches outside, data
// that contradicts its entry points) it names, and the CPU makes that. Needs a GPU at run time only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

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

  // The bytes of the file that this sample needs. UNIMPLEMENTED when the CPU must make it.
  static absl::StatusOr<ByteRange> NeededBytes(const ImageInfo& info, const EntryView& entries, const Draw& draw);

  // A burst is begun, gets its images, and is launched; at most kMaxBursts are on their way at a time.
  static constexpr int kMaxBursts = 2;
  // Fewer than kMaxBursts are on their way.
  absl::Status Begin(const Recipe& recipe);
  // What the sample points to may go afterwards. UNIMPLEMENTED: the CPU must make it. DATA_LOSS: its data contradicts its entry
  // points; the CPU says what follows. RESOURCE_EXHAUSTED: the memory does not hold it beside those added so far.
  absl::Status Add(const GpuSample& sample);
  // Starts what was added: `out`, GPU memory of the batch, is complete when Finish says so. Does not wait.
  absl::Status Launch(void* out);
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
