#include "core/decode/segment/portable_kernels.h"

#include <algorithm>

#include "absl/types/span.h"
#include "core/decode/segment/pixel_math.h"

namespace headrace::portable {

void Idct(const IdctBlock* blocks, int n, const uint16_t* quant, size_t stride) {
  for (const IdctBlock& block : absl::MakeConstSpan(blocks, static_cast<size_t>(n))) {
    int v[64];
    bool rest = false;
    for (size_t k = 0; k < 64; ++k) {
      const size_t i = kNaturalOrder[k];
      v[i] = WrapTo16(block.coefficients[k] * static_cast<int16_t>(quant[k]));
      rest |= i >= 8 && block.coefficients[k] != 0;
    }
    TransformBlock(v, rest);
    for (int y = 0; y < 8; ++y) {
      for (int x = 0; x < 8; ++x) block.out[static_cast<size_t>(y) * stride + x] = ClampToByte(v[8 * y + x] + 128);
    }
    std::fill_n(block.coefficients, 64, int16_t{0});
  }
}

void UpsampleH2V1(const uint8_t* in, int n, uint8_t* out) {
  for (int i = 0; i < n; ++i) {
    out[2 * i] = static_cast<uint8_t>((3 * in[i] + in[i - 1] + 1) >> 2);
    out[2 * i + 1] = static_cast<uint8_t>((3 * in[i] + in[i + 1] + 2) >> 2);
  }
}

void UpsampleH2V2(const uint8_t* near, const uint8_t* far, int n, uint8_t* out) {
  const auto column = [=](int i) { return 3 * near[i] + far[i]; };
  for (int i = 0; i < n; ++i) {
    out[2 * i] = static_cast<uint8_t>((3 * column(i) + column(i - 1) + 8) >> 4);
    out[2 * i + 1] = static_cast<uint8_t>((3 * column(i) + column(i + 1) + 7) >> 4);
  }
}

void UpsampleH1V2(const uint8_t* near, const uint8_t* far, int n, int bias, uint8_t* out) {
  for (int i = 0; i < n; ++i) out[i] = static_cast<uint8_t>((3 * near[i] + far[i] + bias) >> 2);
}

void YccToRgb(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, int n, uint8_t* r, uint8_t* g, uint8_t* b) {
  for (int i = 0; i < n; ++i) headrace::YccToRgb(y[i], cb[i], cr[i], r + i, g + i, b + i);
}

void Interleave(const uint8_t* r, const uint8_t* g, const uint8_t* b, int n, uint8_t* rgb) {
  for (int i = 0; i < n; ++i) {
    rgb[3 * i] = r[i];
    rgb[3 * i + 1] = g[i];
    rgb[3 * i + 2] = b[i];
  }
}

}  // namespace headrace::portable
