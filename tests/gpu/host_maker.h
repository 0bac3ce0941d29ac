// The GPU engine's plan and what its threads do, on the host.
#pragma once

#include <algorithm>
#include <memory_resource>
#include <vector>

#include "core/augment/gpu/layout.h"
#include "tests/gpu/batch_maker.h"
#include "tests/gpu/host_burst.h"

namespace headrace::testing {

class HostMaker : public BatchMaker {
 public:
  absl::Status Begin(const Recipe& recipe) override { return planner_.Begin(recipe); }
  absl::StatusOr<ByteRange> Plan(const GpuSample& sample) override { return planner_.Plan(sample); }
  uint8_t* Stage(uint64_t bytes) override { return planner_.Stage(bytes); }
  absl::Status AddStaged(uint64_t bytes) override { return planner_.AddStaged(bytes); }
  absl::Status AddMapped(const uint8_t* bytes, uint64_t size) override { return planner_.AddMapped(bytes, size); }
  absl::Status Make(std::vector<uint8_t>* out, std::vector<uint32_t>* left) override {
    const gpu::Layout layout = LayOut(planner_);
    brought_.assign(layout.brought_bytes, 0xA5);
    written_.assign(layout.written_bytes, 0xA5);
    for (const gpu::Layout::Piece& piece : layout.pieces) {
      std::copy_n(static_cast<const uint8_t*>(piece.from), piece.bytes, brought_.data() + piece.at);
    }
    failed_.resize(planner_.images.size());
    const gpu::Burst burst = PlaceBurst(planner_, layout, brought_.data(), written_.data(), failed_.data(), out->data());
    RunBurst(burst);
    for (uint32_t i = 0; i < burst.num_images; ++i) {
      if (burst.failed[i] != 0) left->push_back(burst.images[i].sample);
    }
    return absl::OkStatus();
  }

 private:
  gpu::Planner planner_{std::pmr::new_delete_resource()};
  std::vector<uint8_t> brought_, written_, failed_;
};

}  // namespace headrace::testing
