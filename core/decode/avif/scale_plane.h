// Scaling a plane of samples in the arithmetic of libyuv 1924 on x86-64 with AVX2: its box filter, as libavif 1.4 calls it for AV1
// pictures that have another size than the container says. Sides are 1 to 16,384 samples before, at most 32,768 after.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace {

// Samples of one byte, or, for ScalePlane16, of two bytes with at most 12 bits. Strides in bytes.
struct PlaneView {
  const uint8_t* data = nullptr;
  ptrdiff_t stride = 0;
  int width = 0, height = 0;
};

// `to`: width · height samples of the new size, row by row without gaps.
void ScalePlane8(const PlaneView& from, int width, int height, uint8_t* to);
void ScalePlane16(const PlaneView& from, int width, int height, uint16_t* to);

}  // namespace headrace
