// The kernels of idct-inl.h and sample_rows-inl.h in plain C++, for CPUs without SIMD that Highway knows, and for tests
// to compare with. Internal to core/decode/segment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/decode/segment/kernels.h"

namespace headrace::portable {

void Idct(const IdctBlock* blocks, int n, const uint16_t* quant, size_t stride);
void UpsampleH2V1(const uint8_t* in, int n, uint8_t* out);
void UpsampleH2V2(const uint8_t* near, const uint8_t* far, int n, uint8_t* out);
void UpsampleH1V2(const uint8_t* near, const uint8_t* far, int n, int bias, uint8_t* out);
void YccToRgb(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, int n, uint8_t* r, uint8_t* g, uint8_t* b);
void Interleave(const uint8_t* r, const uint8_t* g, const uint8_t* b, int n, uint8_t* rgb);

}  // namespace headrace::portable
