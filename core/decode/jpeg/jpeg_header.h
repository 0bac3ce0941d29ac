// The markers of a JPEG file up to its first scan (ITU-T T.81, annex B), read without libjpeg.
#pragma once

#include "absl/types/span.h"
#include "core/shard/dataset.h"

namespace headrace {

// Size, sampling, process and EXIF orientation of `bytes`, which start with FF D8. Follows
// libjpeg-turbo's reading of markers (garbage between them is skipped) and refuses what
// libjpeg-turbo or Pillow refuses for its frame header: other processes than baseline, extended and
// progressive (Huffman or arithmetic), 12 bits, two or more than four components, zero or
// fractional sampling, more than 65500 pixels a side, a second frame, no scan at all.
// INVALID_ARGUMENT with a short reason. Allocates only if there are several EXIF segments.
absl::StatusOr<ImageInfo> ReadJpegHeader(absl::Span<const uint8_t> bytes);

}  // namespace headrace
