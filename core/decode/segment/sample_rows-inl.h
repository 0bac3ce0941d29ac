// Rows of samples: libjpeg's fancy upsampling (jdsample.c) and colour conversion (jdcolor.c), per SIMD target.
#if defined(HEADRACE_SAMPLE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADRACE_SAMPLE_ROWS_INL_H_
#undef HEADRACE_SAMPLE_ROWS_INL_H_
#else
#define HEADRACE_SAMPLE_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "core/decode/segment/pack_parts-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headrace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Words in the order of their bytes, for upsampling.
using RowD16 = hn::CappedTag<uint16_t, 32>;
using RowD8 = hn::Rebind<uint8_t, RowD16>;  // as many bytes as RowD16 has lanes
using RowV16 = hn::Vec<RowD16>;
constexpr int kRowLanes = static_cast<int>(hn::MaxLanes(RowD16()));

HWY_INLINE RowV16 LoadSamples(const uint8_t* in) { return hn::PromoteTo(RowD16(), hn::LoadU(RowD8(), in)); }
HWY_INLINE RowV16 Times3(RowV16 v) { return hn::Add(hn::Add(v, v), v); }
// Bytes of two vectors in turn.
HWY_INLINE void StoreInTurn(RowV16 even, RowV16 odd, uint8_t* out) {
  const hn::Repartition<uint8_t, RowD16> d8;
  hn::StoreU(hn::BitCast(d8, hn::Or(even, hn::ShiftLeft<8>(odd))), d8, out);
}

void UpsampleH2V1(const uint8_t* in, int n, uint8_t* out) {
  const RowD16 d;
  for (int i = 0; i < n; i += kRowLanes) {
    const RowV16 here = Times3(LoadSamples(in + i));
    const RowV16 left = hn::Add(LoadSamples(in + i - 1), hn::Set(d, 1));
    const RowV16 right = hn::Add(LoadSamples(in + i + 1), hn::Set(d, 2));
    StoreInTurn(hn::ShiftRight<2>(hn::Add(here, left)), hn::ShiftRight<2>(hn::Add(here, right)), out + 2 * i);
  }
}

void UpsampleH2V2(const uint8_t* near, const uint8_t* far, int n, uint8_t* out) {
  const RowD16 d;
  constexpr int kPiece = 16 * kRowLanes;
  alignas(64) uint16_t memory[kPiece + 2 * kRowLanes];
  uint16_t* const columns = memory + kRowLanes;  // 3 · near + far, from one before the piece to one behind it
  for (int begin = 0; begin < n; begin += kPiece) {
    const int size = std::min(kPiece, n - begin);
    columns[-1] = static_cast<uint16_t>(3 * near[begin - 1] + far[begin - 1]);
    for (int i = 0; i <= size; i += kRowLanes) {
      hn::Store(hn::Add(Times3(LoadSamples(near + begin + i)), LoadSamples(far + begin + i)), d, columns + i);
    }
    for (int i = 0; i < size; i += kRowLanes) {
      const RowV16 here = Times3(hn::Load(d, columns + i));
      const RowV16 left = hn::Add(hn::LoadU(d, columns + i - 1), hn::Set(d, 8));
      const RowV16 right = hn::Add(hn::LoadU(d, columns + i + 1), hn::Set(d, 7));
      StoreInTurn(hn::ShiftRight<4>(hn::Add(here, left)), hn::ShiftRight<4>(hn::Add(here, right)), out + 2 * (begin + i));
    }
  }
}

void UpsampleH1V2(const uint8_t* near, const uint8_t* far, int n, int bias, uint8_t* out) {
  const RowD16 d;
  const RowV16 add = hn::Set(d, static_cast<uint16_t>(bias));
  for (int i = 0; i < n; i += kRowLanes) {
    const RowV16 sum = hn::Add(Times3(LoadSamples(near + i)), hn::Add(LoadSamples(far + i), add));
    hn::StoreU(hn::DemoteTo(RowD8(), hn::BitCast(hn::RebindToSigned<RowD16>(), hn::ShiftRight<2>(sum))), RowD8(), out + i);
  }
}

// For colours: whole vectors of bytes, whose halves are words part by part.
using ColorD8 = hn::CappedTag<uint8_t, 64>;
using ColorD16 = hn::Repartition<int16_t, ColorD8>;
using ColorV8 = hn::Vec<ColorD8>;
using ColorV16 = hn::Vec<ColorD16>;

// Bytes less 128 as words.
HWY_INLINE ColorV16 CenteredLower(ColorV8 flipped) {
  return hn::ShiftRight<8>(hn::BitCast(ColorD16(), hn::InterleaveLower(ColorD8(), hn::Zero(ColorD8()), flipped)));
}
HWY_INLINE ColorV16 CenteredUpper(ColorV8 flipped) {
  return hn::ShiftRight<8>(hn::BitCast(ColorD16(), hn::InterleaveUpper(ColorD8(), hn::Zero(ColorD8()), flipped)));
}

struct ColorWords {
  ColorV16 r, g, b;
};

// libjpeg's (x·f + 2^15) >> 16 for 1.402 − 1 and 1.772 − 2 is one multiplication with rounding: compared for all x.
HWY_INLINE ColorWords ConvertWords(ColorV16 luma, ColorV16 u, ColorV16 v) {
  const ColorD16 d;
  const hn::Repartition<int32_t, ColorD16> d32;
  // −0.34414·Cb + (1 − 0.71414)·Cr, then − Cr.
  const auto green = hn::BitCast(d, hn::Set(d32, static_cast<int32_t>((-22554 & 0xFFFF) | 18734u << 16)));
  const auto half = hn::Set(d32, 1 << 15);
  auto odd = hn::Zero(d32);
  auto lower = hn::ReorderWidenMulAccumulate(d32, hn::InterleaveLower(d, u, v), green, half, odd);
  lower = hn::RearrangeToOddPlusEven(lower, odd);
  odd = hn::Zero(d32);
  auto upper = hn::ReorderWidenMulAccumulate(d32, hn::InterleaveUpper(d, u, v), green, half, odd);
  upper = hn::RearrangeToOddPlusEven(upper, odd);
  const auto to_green = PackParts(hn::ShiftRight<16>(lower), hn::ShiftRight<16>(upper));
  return {hn::Add(hn::Add(luma, v), hn::MulFixedPoint15(v, hn::Set(d, 13173))),
          hn::Add(hn::Sub(luma, v), to_green),
          hn::Add(hn::Add(luma, hn::Add(u, u)), hn::MulFixedPoint15(u, hn::Set(d, -7471)))};
}

void YccToRgb(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, int n, uint8_t* r, uint8_t* g, uint8_t* b) {
  const ColorD8 d8;
  const ColorD16 d16;
  const auto flip = hn::Set(d8, 0x80), zero = hn::Zero(d8);
  for (int i = 0; i < n; i += static_cast<int>(hn::Lanes(d8))) {
    const ColorV8 luma = hn::LoadU(d8, y + i);
    const ColorV8 u = hn::Xor(hn::LoadU(d8, cb + i), flip), v = hn::Xor(hn::LoadU(d8, cr + i), flip);
    const auto luma_lower = hn::BitCast(d16, hn::InterleaveLower(d8, luma, zero));
    const auto luma_upper = hn::BitCast(d16, hn::InterleaveUpper(d8, luma, zero));
    const ColorWords lower = ConvertWords(luma_lower, CenteredLower(u), CenteredLower(v));
    const ColorWords upper = ConvertWords(luma_upper, CenteredUpper(u), CenteredUpper(v));
    hn::StoreU(PackUnsignedParts(lower.r, upper.r), d8, r + i);
    hn::StoreU(PackUnsignedParts(lower.g, upper.g), d8, g + i);
    hn::StoreU(PackUnsignedParts(lower.b, upper.b), d8, b + i);
  }
}

void Interleave(const uint8_t* r, const uint8_t* g, const uint8_t* b, int n, uint8_t* rgb) {
  const hn::CappedTag<uint8_t, 32> d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  int i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreInterleaved3(hn::LoadU(d, r + i), hn::LoadU(d, g + i), hn::LoadU(d, b + i), d, rgb + 3 * i);
  }
  for (; i < n; ++i) {
    rgb[3 * i] = r[i];
    rgb[3 * i + 1] = g[i];
    rgb[3 * i + 2] = b[i];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace headrace
HWY_AFTER_NAMESPACE();

#endif  // include guard
