// Windows bitmaps: our own reader, since no library knows Pillow's selection of what it reads and how.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/decode/image.h"
#include "core/shard/dataset.h"

namespace headrace {

bool IsBmp(absl::Span<const uint8_t> bytes);

// Size and channels of `bytes`, for which IsBmp holds. INVALID_ARGUMENT with a short reason for what Pillow does not read: other headers
// than those of 12, 40, 52, 56, 64, 108 and 124 bytes, other depths than 1, 4, 8, 16, 24 and 32 bits, JPEG or PNG inside, unusual bit
// masks. Allocates nothing.
absl::StatusOr<ImageInfo> ReadBmpHeader(absl::Span<const uint8_t> bytes);

// See ImageDecoder::Decode. Pillow's rules: alpha is dropped; 5 and 6 bits are scaled to 0 … 255, rounded down; an index beyond the
// palette is black; a palette that is index = grey (of two colours: black, white) is not looked at. Pictures with run lengths are
// decoded whole, into `scratch`, which keeps its memory between calls.
absl::Status DecodeBmp(absl::Span<const uint8_t> bytes, const ImageInfo& info, const Rect& region, std::vector<uint8_t>* scratch,
                       RgbImage* out);

}  // namespace headrace
