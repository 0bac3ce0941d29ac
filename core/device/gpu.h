// What the pipeline needs of a GPU that makes batches: memory that a client maps, and bursts that fill it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/augment/gpu/sample.h"
#include "core/augment/recipe.h"
#include "core/base/status.h"
#include "core/decode/segment/segment_decoder.h"

namespace headrace {

// The images of a session's slots in GPU memory. Calls on different places may come from several threads.
class DeviceRing {
 public:
  virtual ~DeviceRing() = default;
  // All of it: the slots one behind the other, and what CUDA adds.
  virtual uint64_t total_bytes() const = 0;
  // To be mapped by the client, which may read only: a POSIX descriptor of CUDA's memory.
  virtual int fd() const = 0;
  // These block until it is done; some 20 µs. `offset` counts from the slot's beginning.
  virtual void Write(int slot, uint64_t offset, absl::Span<const uint8_t> bytes) = 0;
  // The two ranges do not overlap.
  virtual void Move(int slot, uint64_t to, uint64_t from, uint64_t bytes) = 0;
};

// Makes batches on a GPU beside the other lanes. A batch is made of bursts of kernels: begun, given its images one by one, launched;
// at most kMaxBursts are on their way at a time, and they are done in their order. Called by one thread.
class GpuLane {
 public:
  static constexpr int kMaxBursts = 2;

  virtual ~GpuLane() = default;
  // Fewer than kMaxBursts are on their way.
  virtual void Begin(const Recipe& recipe) = 0;
  // An image is planned, which says what bytes of its file it needs, and added with these, or not.
  // UNIMPLEMENTED, DATA_LOSS: the CPU must make it. What the sample points to stays until it was added.
  virtual absl::StatusOr<ByteRange> Plan(const GpuSample& sample) = 0;
  // Room for bytes that go to the GPU with the burst, until the next call.
  virtual absl::StatusOr<uint8_t*> Stage(uint64_t bytes) = 0;
  // With the first `bytes` of what was staged last: those that were planned, fewer where the file ends. Errors as of Plan, and
  // RESOURCE_EXHAUSTED: it does not fit beside those added so far.
  virtual absl::Status AddStaged(uint64_t bytes) = 0;
  // With the first `size` of these bytes, which the GPU fetches itself, from memory that Gpu::Pin has made known to it; nobody here looks
  // at them.
  virtual absl::Status AddMapped(const uint8_t* bytes, uint64_t size) = 0;
  // Starts what was added, towards the beginning of a slot. Does not wait.
  virtual void Launch(DeviceRing* ring, int slot) = 0;
  // Whether the oldest burst is done, if one is on its way.
  virtual bool IsDone() = 0;
  // Waits for the oldest burst. `left` gets the places whose images must be made by the CPU after all.
  virtual void Finish(std::vector<uint32_t>* left) = 0;
};

// One GPU of the machine. Thread-safe.
class Gpu {
 public:
  virtual ~Gpu() = default;
  // RESOURCE_EXHAUSTED when the memory declared for this GPU, or its own, is not enough.
  virtual absl::StatusOr<std::unique_ptr<DeviceRing>> NewRing(int num_slots, uint64_t slot_bytes) = 0;
  // As many as it pays to use at once. They live as long as the GPU.
  virtual std::vector<GpuLane*> lanes() = 0;
  // Makes a mapping of a file known to all GPUs, for reading, until the result goes; some 30 ms per GiB that is in memory already.
  // INTERNAL: refused.
  virtual absl::StatusOr<std::shared_ptr<void>> Pin(const uint8_t* address, uint64_t bytes) = 0;
  // Bytes of its memory that this process has taken: rings and what bursts need.
  virtual uint64_t used_bytes() const = 0;
};

// Told why a GPU can no longer be used by this process (it fell off the bus, a memory error). Ends the process: nobody may get a
// batch that such a GPU was making, and clients go on with the next daemon.
using GpuLost = std::function<void(const std::string& why)>;
// A GPU by CUDA's identity of it, 32 hex digits; `memory_bytes` are the most that is taken of its memory. UNAVAILABLE with the
// reason: there is none, no driver or too old a one, or a build without CUDA. RESOURCE_EXHAUSTED: its memory is taken.
using OpenGpu =
    std::function<absl::StatusOr<std::unique_ptr<Gpu>>(const std::string& uuid, uint64_t memory_bytes, const GpuLost& lost)>;

}  // namespace headrace
