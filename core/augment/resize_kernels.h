// The inner loops of the resize, in SIMD; the target is chosen at run time (Highway). Integer
// arithmetic only, so every target gives the same bytes. Internal to core/augment.
//
// Rows are split into three planes of bytes, `PlaneStride(width)` apart. A row between the
// horizontal and the vertical pass is `spread`: a pixel p is the 32-bit lane (q << 16) | (q·256 &
// 0xffff) with q = p − 128, that is the 16-bit pair (256·q, q). One pairwise multiply-add with (k
// >> 8, k & 255) then gives q·k for a 22-bit weight k.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/augment/horizontal_table.h"

namespace headrace {

struct ResizeKernels {
  const char* target;  // name of the SIMD target
  size_t lanes;        // outputs that resize_row makes at once
  bool dots_of_bytes;  // whether resize_row takes tables of kDigits

  // Interleaved RGB to three planes; reads up to 48 bytes behind the row.
  void (*split_row)(const uint8_t* rgb, int width, uint8_t* planes);
  // Three planes, `stride` apart, to interleaved RGB; writes 3 · width bytes.
  void (*merge_row)(const uint8_t* planes, size_t stride, int width, uint8_t* rgb);
  // Reverses each plane (stride `in_stride`, 0 for three equal ones).
  void (*mirror_row)(const uint8_t* in, size_t in_stride, int width, uint8_t* out);
  // Bytes to spread lanes, n of each plane, a multiple of 16.
  void (*spread_row)(const uint8_t* in, size_t in_stride, size_t n, int32_t* out);

  // Three planes (stride `in_stride`) through the horizontal pass to planes of
  // PlaneStride(table.outputs).
  void (*resize_row)(const HorizontalTable& table, const uint8_t* in, size_t in_stride,
                     uint8_t* out);
  void (*resize_row_spread)(const HorizontalTable& table, const uint8_t* in, size_t in_stride,
                            int32_t* out);

  // Weighted sum of `taps` spread rows of n lanes (a multiple of 16) to bytes. The weights are
  // spread too (SpreadWeight), and `bias` is BlendBias(Σ weights).
  void (*blend_rows)(const int32_t* const* rows, const int32_t* weights, int taps, int32_t bias,
                     size_t n, uint8_t* out);
};

// The kernels of the best target that this CPU has (or that a test allows). Cheap.
const ResizeKernels& ActiveResizeKernels();

inline int32_t SpreadWeight(int32_t weight) {
  return static_cast<int32_t>(static_cast<uint32_t>(weight & 255) << 16 |
                              static_cast<uint32_t>(weight >> 8 & 0xffff));
}
// Rounds, and makes up for q = p − 128. Sums are taken modulo 2^32; the true one fits.
inline int32_t BlendBias(int32_t weight_sum) {
  return static_cast<int32_t>((uint32_t{1} << (kWeightBits - 1)) +
                              128 * static_cast<uint32_t>(weight_sum));
}

}  // namespace headrace
