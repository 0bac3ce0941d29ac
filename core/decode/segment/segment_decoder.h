// Decodes regions of JPEGs from their entry points: only the segments that the region touches, several of them interleaved
// on one core, straight to RGB. Pixels are those of libjpeg-turbo (docs/pixels.md); floors and times in docs/cpu_engine.md.
#pragma once

#include <memory>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/decode/entry/entry_data.h"
#include "core/decode/image.h"

namespace headrace {

// A part of an image file.
struct ByteRange {
  uint64_t begin = 0, end = 0;
};

// One per decoding thread; not thread-safe. Keeps its memory between calls: 1.5 MB and the planes of the largest region.
class SegmentDecoder {
 public:
  explicit SegmentDecoder(int streams = 4);  // how many segments are decoded in turn, 1 … 4
  ~SegmentDecoder();

  // The bytes of the file that Decode reads for `region` (stored coordinates). DATA_LOSS when the entries contradict
  // themselves; UNIMPLEMENTED for sampling factors that do not divide the largest (libjpeg refuses them too).
  static absl::StatusOr<ByteRange> NeededBytes(const EntryView& entries, const Rect& region);

  // `frame`: the entries' frame with its tables (ApplyTables). `bytes`: the file's bytes from `begin` on, at least
  // NeededBytes. `region`: inside the image. Whatever the bytes and entries say, nothing outside is read or written.
  // DATA_LOSS when what was decoded contradicts the entries: then libjpeg may know better.
  absl::Status Decode(const EntryView& entries, const JpegFrame& frame, absl::Span<const uint8_t> bytes, uint64_t begin,
                      const Rect& region, RgbImage* out);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The SIMD target of the inner loops, for stats.
const char* SegmentDecoderTarget();

}  // namespace headrace
