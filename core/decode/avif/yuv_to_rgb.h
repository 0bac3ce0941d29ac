// From the planes of an AV1 picture to 8-bit RGB, in the arithmetic of libavif 1.4 with libyuv, as Pillow calls them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/status.h"
#include "core/decode/avif/avif_container.h"
#include "core/decode/image.h"

namespace headrace {

enum class Chroma { k400, k420, k422, k444 };

// Samples of one byte up to 8 bits, else of two. `alpha` may be null; its range is full.
struct YuvImage {
  int width = 0, height = 0;  // px
  int bits = 8;               // 8, 10, 12
  Chroma chroma = Chroma::k420;
  const uint8_t *y = nullptr, *u = nullptr, *v = nullptr, *alpha = nullptr;
  ptrdiff_t y_stride = 0, uv_stride = 0, alpha_stride = 0;  // bytes
  AvifColour colour;
  bool premultiplied = false;  // with alpha
};

// A region of the picture. INVALID_ARGUMENT for a matrix that libavif does not know.
absl::Status YuvToRgb(const YuvImage& image, const Rect& region, RgbImage* out);

}  // namespace headrace
