// The kernels of core/augment/resize_kernels.h without SIMD: for CPUs below the least SIMD target.
// Internal to core/augment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/augment/horizontal_table.h"

namespace headrace::portable {

void SplitRow(const uint8_t* rgb, int width, uint8_t* planes);
void MergeRow(const uint8_t* planes, size_t stride, int width, uint8_t* rgb);
void MirrorRow(const uint8_t* in, size_t in_stride, int width, uint8_t* out);
void SpreadRow(const uint8_t* in, size_t in_stride, size_t n, int32_t* out);
void ResizeRow(const HorizontalTable& table, const uint8_t* in, size_t in_stride, uint8_t* out);
void ResizeRowSpread(const HorizontalTable& table, const uint8_t* in, size_t in_stride,
                     int32_t* out);
void BlendRows(const int32_t* const* rows, const int32_t* weights, int taps, int32_t bias, size_t n,
               uint8_t* out);

}  // namespace headrace::portable
