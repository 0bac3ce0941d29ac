// CMYK to RGB as Pillow converts it.
#pragma once

#include <cstdint>

#include "core/base/host_device.h"

namespace headrace {

// One colour of Pillow's cmyk2rgb (Convert.c): `ink` of it, and `light` = 255 − black.
HEADRACE_GPU inline uint8_t InkToColor(int ink, int light) {
  const int product = ink * light + 128;
  return static_cast<uint8_t>(Max(light - (((product >> 8) + product) >> 8), 0));
}

// Of the inverted channels that Pillow takes every CMYK JPEG to hold. `in`: what libjpeg gives, four
// bytes a pixel; `out`: three.
inline void CmykToRgb(const uint8_t* in, int width, uint8_t* out) {
  for (int x = 0; x < width; ++x, in += 4, out += 3) {
    for (int i = 0; i < 3; ++i) out[i] = InkToColor(255 - in[i], in[3]);
  }
}

}  // namespace headrace
