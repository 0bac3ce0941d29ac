// libjpeg-turbo's arithmetic a value at a time, for the portable kernels and the GPU. Internal to core.
#pragma once

#include <cstdint>

#include "core/base/host_device.h"

namespace headrace {

HEADRACE_GPU inline int WrapTo16(int v) { return static_cast<int16_t>(v); }
HEADRACE_GPU inline uint8_t ClampToByte(int v) { return static_cast<uint8_t>(Min(Max(v, 0), 255)); }

// One 1-D transform of eight values, `kStep` apart; see idct-inl.h. `kShift` is 11 in the first pass, 18 in the second. Sums of
// products wrap at 32 bits, three sums at 16; results saturate.
template <int kStep, int kShift>
HEADRACE_GPU void TransformLine(int* v) {
  const int in0 = v[0], in1 = v[kStep], in2 = v[2 * kStep], in3 = v[3 * kStep];
  const int in4 = v[4 * kStep], in5 = v[5 * kStep], in6 = v[6 * kStep], in7 = v[7 * kStep];
  const uint32_t round = 1u << (kShift - 1);
  const uint32_t sum04 = static_cast<uint32_t>(WrapTo16(in0 + in4)) * 8192u + round;
  const uint32_t difference04 = static_cast<uint32_t>(WrapTo16(in0 - in4)) * 8192u + round;
  const uint32_t even3 = static_cast<uint32_t>(in2 * (4433 + 6270) + in6 * 4433);
  const uint32_t even2 = static_cast<uint32_t>(in2 * 4433 + in6 * (4433 - 15137));
  const int sum37 = WrapTo16(in3 + in7), sum15 = WrapTo16(in1 + in5);
  const uint32_t z3 = static_cast<uint32_t>(sum37 * (9633 - 16069) + sum15 * 9633);
  const uint32_t z4 = static_cast<uint32_t>(sum37 * 9633 + sum15 * (9633 - 3196));
  const uint32_t odd[4] = {static_cast<uint32_t>(in7 * (2446 - 7373)) + static_cast<uint32_t>(in1 * -7373) + z3,
                           static_cast<uint32_t>(in5 * (16819 - 20995)) + static_cast<uint32_t>(in3 * -20995) + z4,
                           static_cast<uint32_t>(in5 * -20995) + static_cast<uint32_t>(in3 * (25172 - 20995)) + z3,
                           static_cast<uint32_t>(in7 * -7373) + static_cast<uint32_t>(in1 * (12299 - 7373)) + z4};
  const uint32_t even[4] = {sum04 + even3, difference04 + even2, difference04 - even2, sum04 - even3};
  HEADRACE_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int high = static_cast<int>(even[i] + odd[3 - i]) >> kShift, low = static_cast<int>(even[i] - odd[3 - i]) >> kShift;
    v[i * kStep] = Min(Max(high, -32768), 32767);
    v[(7 - i) * kStep] = Min(Max(low, -32768), 32767);
  }
}

// Both passes over a block of dequantised coefficients in natural order; 128 less than its samples, not yet clamped. `rest`: whether
// any coefficient below the first row is not 0.
HEADRACE_GPU inline void TransformBlock(int* v, bool rest) {
  if (rest) {
    HEADRACE_UNROLL
    for (int x = 0; x < 8; ++x) TransformLine<8, 11>(v + x);
  } else {  // libjpeg-turbo's shortcut, which wraps
    HEADRACE_UNROLL
    for (int x = 0; x < 8; ++x) {
      const int scaled = WrapTo16(static_cast<int>(static_cast<uint32_t>(v[x]) << 2));
      HEADRACE_UNROLL
      for (int y = 0; y < 8; ++y) v[8 * y + x] = scaled;
    }
  }
  HEADRACE_UNROLL
  for (int y = 0; y < 8; ++y) TransformLine<1, 18>(v + 8 * y);
}

// libjpeg's integer colour conversion.
HEADRACE_GPU inline void YccToRgb(int y, int cb, int cr, uint8_t* r, uint8_t* g, uint8_t* b) {
  const int u = cb - 128, v = cr - 128;
  *r = ClampToByte(y + ((91881 * v + 32768) >> 16));
  *g = ClampToByte(y + ((-22554 * u - 46802 * v + 32768) >> 16));
  *b = ClampToByte(y + ((116130 * u + 32768) >> 16));
}

}  // namespace headrace
