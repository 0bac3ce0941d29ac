// WebP files through libwebp: lossy, lossless, with alpha; of an animation the first frame.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/decode/image.h"
#include "core/shard/dataset.h"

namespace headrace {

bool IsWebp(absl::Span<const uint8_t> bytes);

// The canvas's size, channels (4 with alpha) and orientation (EXIF chunk, then XMP) of `bytes`, for which IsWebp holds. No pixel is
// decoded; allocates O(frames). INVALID_ARGUMENT with a short reason for a broken or cut off container.
absl::StatusOr<ImageInfo> ReadWebpHeader(absl::Span<const uint8_t> bytes);

// See ImageDecoder::Decode. Pillow's rules: alpha is dropped, not blended; what the first frame leaves of the canvas is black. The
// frame is decoded whole into `scratch`, which keeps its memory between calls: fancy upsampling would take the edge of a crop for
// that of the picture.
absl::Status DecodeWebp(absl::Span<const uint8_t> bytes, const ImageInfo& info, const Rect& region, std::vector<uint8_t>* scratch,
                        RgbImage* out);

}  // namespace headrace
