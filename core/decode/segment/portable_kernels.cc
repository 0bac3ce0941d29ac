#include "core/decode/segment/portable_kernels.h"

#include <algorithm>

#include "absl/types/span.h"

namespace headrace::portable {
namespace {

int16_t Wrap(int32_t v) { return static_cast<int16_t>(v); }
uint8_t Clamp(int32_t v) { return static_cast<uint8_t>(std::clamp(v, 0, 255)); }

// One 1-D transform; see idct-inl.h. `kShift` is 11 in the first pass, 18 in the second.
template <int kShift>
void Transform(const int16_t* in, int step, int16_t* out, int out_step) {
  const int16_t in0 = in[0], in1 = in[step], in2 = in[2 * step], in3 = in[3 * step];
  const int16_t in4 = in[4 * step], in5 = in[5 * step], in6 = in[6 * step], in7 = in[7 * step];
  const int32_t sum04 = Wrap(in0 + in4) * 8192, difference04 = Wrap(in0 - in4) * 8192;
  const int32_t even3 = in2 * (4433 + 6270) + in6 * 4433, even2 = in2 * 4433 + in6 * (4433 - 15137);
  const int16_t sum37 = Wrap(in3 + in7), sum15 = Wrap(in1 + in5);
  const int32_t z3 = sum37 * (9633 - 16069) + sum15 * 9633, z4 = sum37 * 9633 + sum15 * (9633 - 3196);
  // Sums of products wrap at 32 bits, as in SIMD.
  const auto add = [](int32_t a, int32_t b) {
    return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
  };
  const auto sub = [](int32_t a, int32_t b) {
    return static_cast<int32_t>(static_cast<uint32_t>(a) - static_cast<uint32_t>(b));
  };
  const int32_t odd[4] = {add(add(in7 * (2446 - 7373), in1 * -7373), z3), add(add(in5 * (16819 - 20995), in3 * -20995), z4),
                          add(add(in5 * -20995, in3 * (25172 - 20995)), z3), add(add(in7 * -7373, in1 * (12299 - 7373)), z4)};
  const int32_t even[4] = {add(sum04, even3), add(difference04, even2), sub(difference04, even2), sub(sum04, even3)};
  for (int i = 0; i < 4; ++i) {
    const int32_t rounded = add(even[i], 1 << (kShift - 1));
    const int32_t high = add(rounded, odd[3 - i]) >> kShift, low = sub(rounded, odd[3 - i]) >> kShift;
    out[i * out_step] = static_cast<int16_t>(std::clamp(high, -32768, 32767));
    out[(7 - i) * out_step] = static_cast<int16_t>(std::clamp(low, -32768, 32767));
  }
}

}  // namespace

void Idct(const IdctBlock* blocks, int n, const uint16_t* quant, size_t stride) {
  for (const IdctBlock& block : absl::MakeConstSpan(blocks, static_cast<size_t>(n))) {
    int16_t v[64], w[64];
    bool rest = false;
    for (size_t k = 0; k < 64; ++k) {
      const size_t i = kNaturalOrder[k];
      v[i] = Wrap(block.coefficients[k] * static_cast<int16_t>(quant[k]));
      rest |= i >= 8 && block.coefficients[k] != 0;
    }
    for (int x = 0; x < 8; ++x) {
      if (rest) {
        Transform<11>(v + x, 8, w + x, 8);
      } else {
        for (int y = 0; y < 8; ++y) w[8 * y + x] = Wrap(static_cast<int32_t>(static_cast<uint32_t>(int32_t{v[x]}) << 2));
      }
    }
    for (int y = 0; y < 8; ++y) {
      Transform<18>(w + 8 * y, 1, v + 8 * y, 1);
      for (int x = 0; x < 8; ++x) block.out[static_cast<size_t>(y) * stride + x] = Clamp(v[8 * y + x] + 128);
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
  for (int i = 0; i < n; ++i) {
    const int luma = y[i], u = cb[i] - 128, v = cr[i] - 128;
    r[i] = Clamp(luma + ((91881 * v + 32768) >> 16));
    g[i] = Clamp(luma + ((-22554 * u - 46802 * v + 32768) >> 16));
    b[i] = Clamp(luma + ((116130 * u + 32768) >> 16));
  }
}

void Interleave(const uint8_t* r, const uint8_t* g, const uint8_t* b, int n, uint8_t* rgb) {
  for (int i = 0; i < n; ++i) {
    rgb[3 * i] = r[i];
    rgb[3 * i + 1] = g[i];
    rgb[3 * i + 2] = b[i];
  }
}

}  // namespace headrace::portable
