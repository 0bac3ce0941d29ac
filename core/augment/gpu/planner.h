// From samples to a burst: what the kernels need to know of each image, its runs and filters. Runs on the CPU, touches no pixel.
// Internal to core/augment/gpu.
#pragma once

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <memory_resource>
#include <unordered_map>
#include <vector>

#include "core/augment/filter.h"
#include "core/augment/pack.h"
#include "core/augment/step_plan.h"
#include "core/decode/segment/region_plan.h"
#include "core/decode/segment/segment_decoder.h"
#include "core/augment/gpu/burst.h"
#include "core/augment/gpu/sample.h"
#include "core/augment/gpu/staging.h"

namespace headrace::gpu {

// What the GPU makes of these steps: one resize at most, pixels handed on before it, crops and flips behind it.
struct Steps {
  Rect source;                       // of the oriented image
  const Stage* resize = nullptr;     // null: none
  bool mirrored = false, upside_down = false;
  int height = 0, width = 0;         // of the result
};
// Reuses the memory of `stages`, which must outlive the result. UNIMPLEMENTED when it is not of that kind.
absl::StatusOr<Steps> PlanForGpu(const ImageInfo& info, const Draw& draw, std::vector<Stage>* stages);

// Reused from batch to batch, with its memory, so that batches allocate nothing in the steady state.
class Planner {
 public:
  // What goes to the GPU lies in `memory`, which outlives this.
  explicit Planner(std::pmr::memory_resource* memory);

  absl::Status Begin(const Recipe& recipe);
  // The bytes of the file that this sample needs, to be added next. UNIMPLEMENTED: the CPU must make it. DATA_LOSS: its data
  // contradicts its entry points; the CPU says what follows. What the sample points to stays until it was added.
  absl::StatusOr<ByteRange> Plan(const GpuSample& sample);
  // Room for bytes that go to the GPU with the burst, until the next call.
  uint8_t* Stage(uint64_t bytes);
  // Adds the sample that was planned last, with the first `bytes` of what was staged last; fewer than planned where the file ends.
  // Errors as of Plan: then nothing was added.
  absl::Status AddStaged(uint64_t bytes);
  // The same with bytes that the GPU fetches, at which the CPU does not look.
  absl::Status AddMapped(const uint8_t* bytes, uint64_t size);
  // Takes the sample out again that was added last.
  void TakeBack();

  // What was added, in the order in which it goes to the GPU.
  std::pmr::vector<Image> images;
  std::pmr::vector<Row> rows;
  std::pmr::vector<uint64_t> entries;
  std::pmr::vector<HuffmanSymbols> specs;
  std::pmr::vector<uint16_t> quant;
  std::pmr::vector<int32_t> numbers;
  std::array<std::vector<std::pmr::vector<Chunk>>, kGroups> chunks;  // kTasks of them
  std::pmr::vector<uint32_t> values;  // the element of every byte, per channel
  Staging staged;                     // images' bytes, 16 apart; they stay where they are
  uint64_t num_runs = 0, num_blocks = 0, num_samples = 0, num_words = 0, num_made_numbers = 0;
  Output output = {};

 private:
  // How much there was before the last sample.
  struct Sizes {
    size_t images, rows, entries, specs, quant, numbers;
    std::array<std::array<size_t, kTasks>, kGroups> chunks;
    uint64_t staged, runs, blocks, samples, words, made_numbers;
  };
  // Of the image that was planned, as far as it does not depend on where its bytes are.
  struct Planned {
    GpuSample sample;
    Steps steps;
    Rect region;
    RegionPlan plan;
    ByteRange range;
  };
  Sizes Now() const;
  // With the first `bytes` of those that were planned.
  absl::Status AddImage(uint64_t bytes, Image* image);
  absl::Status FillImage(Image* image);
  absl::Status AddRows(Image* image, uint32_t* longest);
  void AddTables(const JpegFrame& frame, Image* image);
  void AddPlanes(const JpegFrame& frame, const RegionPlan& plan, Image* image);
  uint32_t TableOf(const HuffmanSpec& spec);
  uint32_t QuantOf(const std::array<uint16_t, 64>& quant);
  Axis AddAxis(Interpolation interpolation, int in, int out, Span window, int origin);
  uint64_t TakeSamples(uint64_t bytes);

  Planned planned_;
  Sizes before_;
  std::vector<uint64_t> hints_;  // different for different tables, mostly
  // By a table set's number: those of its tables that the burst has, by the numbers in JpegComponent.
  struct TableSet {
    TableSet() {
      for (auto* numbers : {&dc, &ac, &quant}) numbers->fill(UINT32_MAX);
    }
    std::array<uint32_t, 4> dc, ac, quant;
  };
  std::unordered_map<uint64_t, TableSet> sets_;
  std::vector<uint32_t> longest_;  // segment of each image, in bytes
  uint32_t long_bytes_ = 0;        // from which on an image is of the first group
  std::vector<headrace::Stage> stages_;
  // Crops repeat: so do their filters, within a burst and from one to the next.
  struct Filter {
    AxisFilter axis;
    uint64_t burst = 0;  // whose numbers have it, from `at` on
    uint32_t at = 0;
  };
  std::map<std::array<int, 5>, Filter> filters_;  // by interpolation, sizes and window
  size_t filter_bytes_ = 0;
  uint64_t burst_ = 0;
  uint64_t kept_ = 0;  // staged bytes of what was added
  std::vector<int32_t> nearest_;
};

}  // namespace headrace::gpu
