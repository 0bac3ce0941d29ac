// The cpu engine's decoder: pixels of a region of an image file.
#pragma once

#include <memory>
#include <string>

#include "absl/types/span.h"
#include "core/decode/image.h"
#include "core/shard/dataset.h"
#include "core/shard/format.h"

namespace headrace {

// One per decoding thread; not thread-safe. Keeps its memory between calls.
class ImageDecoder {
 public:
  // `max_scaled_pixels`: of AV1 frames that are larger than their AVIF says, see avif_decoder.h.
  explicit ImageDecoder(uint64_t max_scaled_pixels = kMaxImagePixels);
  ~ImageDecoder();

  // Decodes `region` (in **stored** coordinates, inside width × height of `info`) to RGB as
  // Pillow's Image.open(…).convert("RGB") gives it: libjpeg-turbo's ISLOW IDCT, fancy upsampling and colour conversion;
  // grey replicated; CMYK and YCCK by Pillow's rule; palettes, grey, 16-bit and alpha by Pillow's rules (docs/pixels.md).
  // The pixels are those of a full decode cut to the region. JPEG: rows above the region are skipped, rows below never
  // decoded, columns cropped to iMCUs with one guard column.
  // INVALID_ARGUMENT with the library's reason for undecodable bytes; `warning` (may be null) receives the library's
  // first warning or "" (libjpeg repairs and goes on, as Pillow does where Pillow accepts the file).
  absl::Status Decode(absl::Span<const uint8_t> bytes, const ImageInfo& info, const Rect& region, RgbImage* out,
                      std::string* warning);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Where the pixel (row y, column x) of the stored picture goes in the oriented one: flips of the stored axes, then perhaps an exchange
// of the axes.
struct Turn {
  bool flip_rows, flip_columns, transpose;
};
Turn TurnOf(int orientation);

// Applies an EXIF orientation (1 … 8) like ImageOps.exif_transpose.
void ApplyOrientation(const RgbImage& in, int orientation, RgbImage* out);

// The region of the stored image that becomes `oriented` (a region of the oriented image).
Rect StoredRegion(const Rect& oriented, const ImageInfo& info);

}  // namespace headrace
