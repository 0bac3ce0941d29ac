// From an image file's bytes to the sample's place in a slot: decode only what the steps need,
// resize, flip, normalise, cast; the last pass writes into the slot.
#pragma once

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "core/augment/draw.h"
#include "core/augment/recipe.h"
#include "core/decode/entry/entry_data.h"
#include "core/shard/dataset.h"

namespace headrace {

// An image file that is read as far as it is needed.
struct EncodedImage {
  const ImageInfo* info;
  uint64_t file_bytes;
  // The file's bytes [begin, end), valid until the next call.
  absl::FunctionRef<absl::StatusOr<absl::Span<const uint8_t>>(uint64_t begin, uint64_t end)> read;
  // Its entry points and its frame with tables; both null: none.
  const EntryView* entries = nullptr;
  const JpegFrame* frame = nullptr;
  // Receives how many rows of the stored image, from its top, decoding must get through; before
  // `read` is called. May be null.
  uint32_t* stored_rows = nullptr;
};

// One per decoding thread; not thread-safe. Keeps its memory between calls.
class SampleRenderer {
 public:
  // `streams`: SegmentDecoder's, 1 … 4.
  explicit SampleRenderer(int streams = 4);
  ~SampleRenderer();

  // Writes the sample to `out`: height × width × 3 elements of recipe.dtype in recipe.memory_format
  // (contiguous: three planes; channels_last: interleaved), `out` aligned to the element only.
  // Every element is written or the status is not OK (INVALID_ARGUMENT: the bytes cannot be
  // decoded, with the reason).
  absl::Status Render(absl::Span<const uint8_t> bytes, const ImageInfo& info, const Recipe& recipe,
                      const Draw& draw, void* out, std::string* warning);
  // The same pixels; with entry points only the part of the file that the steps need is read and
  // decoded. Where that part contradicts its entry points, the whole file is read and decoded by
  // its library. Errors of `read` are handed on.
  absl::Status Render(const EncodedImage& image, const Recipe& recipe, const Draw& draw, void* out,
                      std::string* warning);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Bytes of one element.
int DTypeBytes(DType dtype);

}  // namespace headrace
