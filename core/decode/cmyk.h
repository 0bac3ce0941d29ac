// CMYK to RGB as Pillow converts it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace headrace {

// Pillow's cmyk2rgb (Convert.c) on the inverted channels that it takes every CMYK JPEG to hold. `in`: what libjpeg gives,
// four bytes a pixel; `out`: three.
inline void CmykToRgb(const uint8_t* in, int width, uint8_t* out) {
  for (int x = 0; x < width; ++x, in += 4, out += 3) {
    for (int i = 0; i < 3; ++i) {
      const int product = (255 - in[i]) * in[3] + 128;
      out[i] = static_cast<uint8_t>(std::max(in[3] - (((product >> 8) + product) >> 8), 0));
    }
  }
}

}  // namespace headrace
