// The first picture of TIFF files through libtiff, which says nothing on standard error here.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/decode/image.h"
#include "core/shard/dataset.h"

namespace headrace {

// Classic TIFF and BigTIFF in either byte order.
bool IsTiff(absl::Span<const uint8_t> bytes);

// Size, channels and orientation (tag 274, then XMP) of `bytes`, for which IsTiff holds. INVALID_ARGUMENT with a short reason for a
// broken directory and for what is not decoded (docs/pixels.md). Memory: that of libtiff's directory, at most 64 MiB a piece.
absl::StatusOr<ImageInfo> ReadTiffHeader(absl::Span<const uint8_t> bytes);

// See ImageDecoder::Decode. Pillow's rules: alpha is dropped; associated alpha is divided out first; of RGB and CMYK with 16 bits
// the high byte counts, but grey of 12, 16 and 32 bits is **clipped** to 255. Only the strips or tiles that the region touches are
// decoded, rows or a tile in `scratch`, which keeps its memory between calls.
absl::Status DecodeTiff(absl::Span<const uint8_t> bytes, const ImageInfo& info, const Rect& region, std::vector<uint8_t>* scratch,
                        RgbImage* out, std::string* warning);

}  // namespace headrace
