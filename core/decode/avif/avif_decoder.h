// AVIF files: our own reader of the container, dav1d for AV1, and the RGB that libavif and libyuv make of it for Pillow. A build
// without dav1d has avif_absent.cc instead, which names the format and refuses it.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/decode/avif/avif_container.h"
#include "core/decode/image.h"
#include "core/shard/dataset.h"

namespace headrace {

// Size, channels (1 grey, 3; one more with alpha) and orientation of `bytes`, for which IsAvif holds, from the container alone.
// INVALID_ARGUMENT with a short reason for what Pillow refuses.
absl::StatusOr<ImageInfo> ReadAvifHeader(absl::Span<const uint8_t> bytes);

// See ImageDecoder::Decode. Pillow's rules: 8 bits whatever the file has; alpha is dropped, premultiplied alpha divided out first; planes
// of another size than the container says are scaled. The picture, and its alpha, is decoded whole, by the calling thread alone; a grid is
// put together in `scratch`, which keeps its memory between calls. An AV1 frame has at most as many pixels as the container says, or, if
// that is more, as are left of `max_scaled_pixels`; what it has above the container's is taken from them, for all tiles of a grid together.
absl::Status DecodeAvif(absl::Span<const uint8_t> bytes, const ImageInfo& info, const Rect& region, uint64_t max_scaled_pixels,
                        std::vector<uint8_t>* scratch, RgbImage* out);

}  // namespace headrace
