// From entry points to samples: the segments of a region as runs of MCUs, several of them decoded in turn, each put through the
// inverse DCT into its place among the component's samples. Internal to core/decode/segment.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "core/decode/entry/entry_data.h"
#include "core/decode/segment/entropy_context.h"
#include "core/decode/segment/kernels.h"
#include "core/decode/segment/region_plan.h"

namespace headrace {

// The rows of one component that are held: those of as many MCU rows as the ring has places, each at its number modulo places.
struct PlaneRing {
  uint8_t* origin = nullptr;
  size_t stride = 0;
  int rows = 0;                       // samples; a multiple of the MCU row's
  int first_column = 0, columns = 0;  // in the component's samples
  // Where row y's column 0 would lie.
  uint8_t* row(int y) const {
    const int mask = rows - 1;  // a power of two but for odd sampling factors, and a division takes 20 cycles
    const int place = (rows & mask) == 0 ? y & mask : y % rows;
    return origin + stride * static_cast<size_t>(place) - first_column;
  }
};

class SegmentRuns {
 public:
  SegmentRuns(int streams, const SegmentKernels& kernels);

  // Of the region at hand. All must live until the last Complete.
  struct Job {
    const EntryView* entries;
    const JpegFrame* frame;            // with tables
    absl::Span<const uint8_t> scan;    // scan[i] is byte first_byte + i of the scan
    uint64_t first_byte;
    const RegionPlan* plan;
    const PlaneRing* planes;           // one per component
    int ring_rows;                     // MCU rows that the planes hold, a power of two
  };
  void Begin(const Job& job);

  // Decodes until all MCU rows up to `row` are there. Rows from `oldest` on are still needed: theirs are not overwritten.
  // False when what was decoded contradicts the entries; then nothing more can be had.
  bool Complete(int row, int oldest);

 private:
  struct Run {  // consecutive MCUs of one row that one stream decodes
    int row = 0, mcu = 0, count = 0, decoded = 0;  // those of `count` that the region needs
    std::array<int16_t, 4> dc = {};
    uint64_t min_end_bit = 0, max_end_bit = 0;  // where it must end
    bool checks_dc = false;
    std::array<int16_t, 4> end_dc = {};
  };

  void PrepareTables();
  bool BeginSegment();
  bool Start(int stream);
  void SetEnd(uint64_t base, uint64_t size, bool at_marker, Run* run);
  void PassMarker(size_t consumed, bool to_segment_end);
  void Finish(int stream);
  int PlaceBlocks(const Run& run, int c, int16_t* first, int skipped, IdctBlock* list);
  int* UnfinishedRuns(int row) { return &unfinished_[static_cast<size_t>(row & (job_.ring_rows - 1))]; }

  const int streams_;
  const SegmentKernels& kernels_;
  const std::unique_ptr<EntropyContext> context_;
  Job job_ = {};
  int interval_ = 0, blocks_ = 0;      // MCUs of a segment, blocks of an MCU

  // Runs not yet started: what is left of a segment in pending_, then from (next_row_, next_segment_) on.
  int first_segment_ = 0, last_segment_ = 0;
  int next_row_ = 0, next_segment_ = 0, row_limit_ = 0;
  Run pending_;
  EntryPoint begin_point_, end_point_;  // of the pending run's segment
  bool has_end_point_ = false;
  uint64_t pending_byte_ = 0, pending_end_ = 0;
  int pending_bit_ = 0;
  std::array<Run, kMaxStreams> runs_;
  std::array<bool, kMaxStreams> running_ = {};
  std::vector<int> unfinished_;        // runs of each MCU row in the ring
  int complete_ = 0;                   // all rows before it are
  bool failed_ = false;
  std::array<std::array<IdctBlock, kMaxIdctBlocks>, 4> blocks_of_run_;  // by quantisation table

  alignas(64) std::array<std::array<uint16_t, 64>, 4> quant_;  // in zigzag order

  // What the tables were made for.
  std::array<HuffmanSpec, 8> built_;
  std::array<JpegComponent, 4> built_components_;
  int built_interval_ = 0, built_num_components_ = 0;
};

}  // namespace headrace
