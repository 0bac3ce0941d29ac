// Whoever makes batches from entry points as the GPU does.
#pragma once

#include <cstdint>
#include <vector>

#include "core/augment/gpu/planner.h"
#include "core/augment/recipe.h"
#include "core/base/status.h"

namespace headrace::testing {

class BatchMaker {
 public:
  virtual ~BatchMaker() = default;
  // As of core/device/gpu.h.
  virtual absl::Status Begin(const Recipe& recipe) = 0;
  virtual absl::StatusOr<ByteRange> Plan(const GpuSample& sample) = 0;
  virtual uint8_t* Stage(uint64_t bytes) = 0;
  virtual absl::Status AddStaged(uint64_t bytes) = 0;
  virtual absl::Status AddMapped(const uint8_t* bytes, uint64_t size) = 0;
  // Fills `out`. `left` gets the places of images whose data contradicts their entry points.
  virtual absl::Status Make(std::vector<uint8_t>* out, std::vector<uint32_t>* left) = 0;
};

}  // namespace headrace::testing
