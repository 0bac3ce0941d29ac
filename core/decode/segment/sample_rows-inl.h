// Rows of samples: libjpeg's fancy upsampling (jdsample.c) and colour conversion (jdcolor.c), per SIMD target.
#if defined(HEADRACE_SAMPLE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADRACE_SAMPLE_ROWS_INL_H_
#undef HEADRACE_SAMPLE_ROWS_INL_H_
#else
#define HEADRACE_SAMPLE_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace headrace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using RowD16 = hn::CappedTag<uint16_t, 32>;
using RowDi16 = hn::RebindToSigned<RowD16>;
using RowD8 = hn::Rebind<uint8_t, RowD16>;  // as many bytes as RowD16 has lanes
using RowV16 = hn::Vec<RowD16>;
constexpr int kRowLanes = static_cast<int>(hn::MaxLanes(RowD16()));

HWY_INLINE RowV16 LoadSamples(const uint8_t* in) { return hn::PromoteTo(RowD16(), hn::LoadU(RowD8(), in)); }
HWY_INLINE hn::Vec<RowD8> NarrowSamples(RowV16 v) { return hn::DemoteTo(RowD8(), hn::BitCast(RowDi16(), v)); }
HWY_INLINE RowV16 Times3(RowV16 v) { return hn::Add(hn::Add(v, v), v); }

void UpsampleH2V1(const uint8_t* in, int n, uint8_t* out) {
  const RowD16 d;
  for (int i = 0; i < n; i += kRowLanes) {
    const RowV16 here = Times3(LoadSamples(in + i));
    const RowV16 left = hn::Add(LoadSamples(in + i - 1), hn::Set(d, 1));
    const RowV16 right = hn::Add(LoadSamples(in + i + 1), hn::Set(d, 2));
    hn::StoreInterleaved2(NarrowSamples(hn::ShiftRight<2>(hn::Add(here, left))),
                          NarrowSamples(hn::ShiftRight<2>(hn::Add(here, right))), RowD8(), out + 2 * i);
  }
}

void UpsampleH2V2(const uint8_t* near, const uint8_t* far, int n, uint8_t* out) {
  const RowD16 d;
  const auto column = [=](int i) HWY_ATTR { return hn::Add(Times3(LoadSamples(near + i)), LoadSamples(far + i)); };
  for (int i = 0; i < n; i += kRowLanes) {
    const RowV16 here = Times3(column(i));
    const RowV16 left = hn::Add(column(i - 1), hn::Set(d, 8));
    const RowV16 right = hn::Add(column(i + 1), hn::Set(d, 7));
    hn::StoreInterleaved2(NarrowSamples(hn::ShiftRight<4>(hn::Add(here, left))),
                          NarrowSamples(hn::ShiftRight<4>(hn::Add(here, right))), RowD8(), out + 2 * i);
  }
}

void UpsampleH1V2(const uint8_t* near, const uint8_t* far, int n, int bias, uint8_t* out) {
  const RowD16 d;
  const RowV16 add = hn::Set(d, static_cast<uint16_t>(bias));
  for (int i = 0; i < n; i += kRowLanes) {
    const RowV16 sum = hn::Add(Times3(LoadSamples(near + i)), hn::Add(LoadSamples(far + i), add));
    hn::StoreU(NarrowSamples(hn::ShiftRight<2>(sum)), RowD8(), out + i);
  }
}

// Products of 16-bit fixed point, rounded as (x·f + 2^15) >> 16: ((2x·f) >> 16) + 1) >> 1 is the same number.
void YccToRgb(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, int n, uint8_t* r, uint8_t* g, uint8_t* b) {
  const RowDi16 d;
  const hn::Repartition<int32_t, RowDi16> d32;
  const auto offset = hn::Set(d, 128), one = hn::Set(d, 1);
  const auto red = hn::Set(d, 26345);    // 1.40200 − 1
  const auto blue = hn::Set(d, -14942);  // 1.77200 − 2
  // −0.34414·Cb + (1 − 0.71414)·Cr, then − Cr.
  const auto green = hn::BitCast(d, hn::Set(d32, static_cast<int32_t>((-22554 & 0xFFFF) | 18734u << 16)));
  const auto half = hn::Set(d32, 1 << 15);
  for (int i = 0; i < n; i += kRowLanes) {
    const auto luma = hn::BitCast(d, LoadSamples(y + i));
    const auto u = hn::Sub(hn::BitCast(d, LoadSamples(cb + i)), offset);
    const auto v = hn::Sub(hn::BitCast(d, LoadSamples(cr + i)), offset);
    const auto u2 = hn::Add(u, u), v2 = hn::Add(v, v);
    const auto to_red = hn::ShiftRight<1>(hn::Add(hn::MulHigh(v2, red), one));
    const auto to_blue = hn::ShiftRight<1>(hn::Add(hn::MulHigh(u2, blue), one));
    auto odd = hn::Zero(d32);
    auto lower = hn::ReorderWidenMulAccumulate(d32, hn::InterleaveLower(d, u, v), green, hn::Zero(d32), odd);
    lower = hn::RearrangeToOddPlusEven(lower, odd);
    odd = hn::Zero(d32);
    auto upper = hn::ReorderWidenMulAccumulate(d32, hn::InterleaveUpper(d, u, v), green, hn::Zero(d32), odd);
    upper = hn::RearrangeToOddPlusEven(upper, odd);
    const auto to_green =
        hn::Sub(PackParts(hn::ShiftRight<16>(hn::Add(lower, half)), hn::ShiftRight<16>(hn::Add(upper, half))), v);
    hn::StoreU(hn::DemoteTo(RowD8(), hn::Add(luma, hn::Add(v, to_red))), RowD8(), r + i);
    hn::StoreU(hn::DemoteTo(RowD8(), hn::Add(luma, to_green)), RowD8(), g + i);
    hn::StoreU(hn::DemoteTo(RowD8(), hn::Add(luma, hn::Add(u2, to_blue))), RowD8(), b + i);
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
