// What kind of image some bytes are, from the content alone, without decoding pixels.
#pragma once

#include "absl/types/span.h"
#include "core/shard/dataset.h"
#include "core/shard/format.h"

namespace headrace {

// Default limit on width × height.
inline constexpr uint64_t kMaxPixels = kMaxImagePixels;

// Format by magic number, then size, sampling and EXIF orientation (Pillow's rules of ImageOps.exif_transpose: first
// EXIF block, any odd value is 1) from the headers. INVALID_ARGUMENT with a short reason when this is no image that the
// cpu engine decodes or its header is broken or above `max_pixels`. Never reads outside `bytes`; allocates O(header).
absl::StatusOr<ImageInfo> ProbeImage(absl::Span<const uint8_t> bytes, uint64_t max_pixels = kMaxPixels);

}  // namespace headrace
