// Decodes regions of JPEGs from their entry points: only the segments that the region touches, several of them interleaved
// on one core. Pixels are those of libjpeg-turbo (docs/pixels.md); floors and times in docs/cpu_engine.md.
#pragma once

#include <memory>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/decode/entry/entry_data.h"
#include "core/decode/image.h"

namespace headrace {

struct SegmentKernels;

// A part of an image file.
struct ByteRange {
  uint64_t begin = 0, end = 0;
};

struct RegionPlan;

// One per decoding thread; not thread-safe. Keeps its memory between calls: 1.5 MB and some MCU rows of the widest region.
class SegmentDecoder {
 public:
  // `streams`: how many segments are decoded in turn, 1 … 4. `kernels`: other inner loops, for benchmarks.
  explicit SegmentDecoder(int streams = 4, const SegmentKernels* kernels = nullptr);
  ~SegmentDecoder();

  // The bytes of the file that decoding `region` (stored coordinates) reads. DATA_LOSS when the entries contradict
  // themselves; UNIMPLEMENTED for sampling factors that do not divide the largest (libjpeg refuses them too).
  static absl::StatusOr<ByteRange> NeededBytes(const EntryView& entries, const Rect& region);
  // For whoever has planned the region already.
  static absl::StatusOr<ByteRange> NeededBytes(const EntryView& entries, const RegionPlan& plan, const Rect& region);

  // Prepares a region, inside the image. `frame`: the entries' frame with its tables (ApplyTables). `bytes`: the file's
  // bytes from `begin` on, at least NeededBytes. All of them must live until the last Row.
  absl::Status Begin(const EntryView& entries, const JpegFrame& frame, absl::Span<const uint8_t> bytes, uint64_t begin,
                     const Rect& region);
  // Row `row` of the region, valid until the next call. Rows must be asked for in ascending order; some may be left out or
  // asked for again. Decodes on as far as it must. When that fails, the row is anything.
  PlanarRow Row(int row);
  // All rows, interleaved.
  void ReadRows(RgbImage* out);
  // DATA_LOSS when what was decoded contradicts the entries: then libjpeg may know better. Whatever the bytes and entries
  // say, nothing outside is read or written.
  absl::Status Finish();

  // The three of them.
  absl::Status Decode(const EntryView& entries, const JpegFrame& frame, absl::Span<const uint8_t> bytes, uint64_t begin,
                      const Rect& region, RgbImage* out);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The SIMD target of the inner loops, for stats.
const char* SegmentDecoderTarget();

}  // namespace headrace
