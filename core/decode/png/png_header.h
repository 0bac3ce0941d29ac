// The chunks of a PNG file (ISO/IEC 15948), read without decoding pixels.
#pragma once

#include "absl/types/span.h"
#include "core/shard/dataset.h"

namespace headrace {

// True if `bytes` start with the signature of PNG.
bool IsPng(absl::Span<const uint8_t> bytes);

// Size, channels (a palette counts as 3) and orientation of `bytes`, which start with the
// signature. The orientation is looked for where Pillow 13 finds it: eXIf (also behind the image
// data), ImageMagick's `Raw profile type exif` text, then XMP; compressed text is inflated up to 1
// MiB. INVALID_ARGUMENT with a short reason for a broken IHDR.
absl::StatusOr<ImageInfo> ReadPngHeader(absl::Span<const uint8_t> bytes);

}  // namespace headrace
