// The first frame of GIF files (GIF87a and GIF89a). Our own reader: what libraries make of data that end early or go on too long
// is not what Pillow makes of them.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/decode/image.h"
#include "core/shard/dataset.h"

namespace headrace {

bool IsGif(absl::Span<const uint8_t> bytes);

// The size of the screen, grown to hold the first frame, of `bytes`, for which IsGif holds. INVALID_ARGUMENT with a short reason
// when there is no frame. Allocates nothing.
absl::StatusOr<ImageInfo> ReadGifHeader(absl::Span<const uint8_t> bytes);

// See ImageDecoder::Decode. Pillow's rules: transparency is dropped; around the frame is the transparent colour if there is one, else
// colour 0; an index beyond the palette is black; without a palette indices are grey. The frame's indices go into `scratch`, which
// keeps its memory between calls.
absl::Status DecodeGif(absl::Span<const uint8_t> bytes, const ImageInfo& info, const Rect& region, std::vector<uint8_t>* scratch,
                       RgbImage* out);

}  // namespace headrace
