// Makes batches on a GPU from the same files and entry points as core/augment/render.h does on the CPU, with identical bytes: one
// burst of kernels per batch on one stream. What it cannot make (no entry points, several resizes, a crop that reaches outside, data
// that contradicts its entry points) it names, and the CPU makes that. Needs a GPU at run time only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "core/augment/draw.h"
#include "core/augment/recipe.h"
#include "core/base/status.h"
#include "core/decode/entry/entry_data.h"
#include "core/decode/segment/segment_decoder.h"
#include "core/shard/dataset.h"

namespace headrace {

// One per stream of batches; not thread-safe.
class GpuRenderer {
 public:
  // UNAVAILABLE without a usable GPU and driver, and says why. `memory_bytes`: of the GPU, at most; taken at once.
  static absl::StatusOr<std::unique_ptr<GpuRenderer>> Create(int device, uint64_t memory_bytes);
  ~GpuRenderer();

  // An image of a batch. All must live until Start has returned.
  struct Sample {
    const ImageInfo* info;
    const EntryView* entries;
    const JpegFrame* frame;          // with its tables
    absl::Span<const uint8_t> bytes;  // of the file from `begin` on: at least NeededBytes
    uint64_t begin;
    const Draw* draw;
    uint32_t place;                  // in the batch
  };
  // The bytes of the file that this sample needs. UNIMPLEMENTED when the CPU must make it.
  static absl::StatusOr<ByteRange> NeededBytes(const ImageInfo& info, const EntryView& entries, const Draw& draw);

  // Starts a batch: `out`, GPU memory, is complete when Finish says so. `left` gets the places that must be made by the CPU, as
  // far as they are known already. RESOURCE_EXHAUSTED when the batch does not fit the memory: nothing was started.
  // Does not wait, unless the batch before last is still being made.
  absl::Status Start(absl::Span<const Sample> samples, const Recipe& recipe, void* out, std::vector<uint32_t>* left);
  // Waits for the batch started last. `left` gets the places of the images whose data contradicts their entry points: what is
  // there is anything.
  absl::Status Finish(std::vector<uint32_t>* left);

  // Bytes of the GPU's memory that the batch started last took.
  uint64_t used_bytes() const;

 private:
  class Impl;
  explicit GpuRenderer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace
