#include "core/augment/resize_kernels.h"

#include "core/augment/portable_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/augment/resize_kernels.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>

#include "core/base/vnni.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#include "core/augment/pair_sum-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace headrace {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
using namespace portable;  // NOLINT: the kernels below, without SIMD
#else
namespace hn = hwy::HWY_NAMESPACE;

using D8 = hn::Repartition<uint8_t, D32>;
using D8Of32 = hn::Rebind<uint8_t, D32>;  // as many bytes as D32 has lanes

constexpr int32_t kHalf = 1 << (kWeightBits - 1);  // rounds the final shift
constexpr int32_t kOffset = 128 << kWeightBits;    // 128 in fixed point

// From 32-bit lanes q (−128 … 127) to spread lanes.
HWY_INLINE V32 Spread(V32 q) {
#if HWY_TARGET == HWY_SSE2  // has no byte shuffle
  const hn::RebindToUnsigned<D32> du;
  const auto bits = hn::BitCast(du, q);
  return hn::BitCast(
      D32(), hn::Or(hn::ShiftLeft<16>(bits), hn::And(hn::ShiftLeft<8>(bits), hn::Set(du, 0xff00))));
#else
  const D8 d8;
  alignas(16) static constexpr uint8_t kOrder[16] = {0x80, 0, 0, 1, 0x80, 4,  4,  5,
                                                     0x80, 8, 8, 9, 0x80, 12, 12, 13};
  return hn::BitCast(D32(),
                     hn::TableLookupBytesOr0(hn::BitCast(d8, q), hn::LoadDup128(d8, kOrder)));
#endif
}

// 16 bytes from each block's own place.
HWY_INLINE hn::Vec<D8> LoadBlocks(const uint8_t* plane, const int32_t* start) {
  const hn::Full128<uint8_t> d;
  const auto v0 = hn::LoadU(d, plane + start[0]);
#if HWY_MAX_BYTES == 16
  return v0;
#else
  const hn::Twice<decltype(d)> d2;
  const auto v01 = hn::Combine(d2, hn::LoadU(d, plane + start[1]), v0);
#if HWY_MAX_BYTES == 32
  return v01;
#else
  const auto v23 = hn::Combine(d2, hn::LoadU(d, plane + start[3]), hn::LoadU(d, plane + start[2]));
  return hn::Combine(D8(), v23, v01);
#endif
#endif
}

// Where the horizontal pass leaves its results.
struct ToBytes {
  using Out = uint8_t;
  static constexpr int32_t kBias = kHalf;
  static HWY_INLINE void Store(V32 sum, uint8_t* out) {
    hn::StoreU(hn::DemoteTo(D8Of32(), hn::ShiftRight<kWeightBits>(sum)), D8Of32(), out);
  }
};
template <bool kClamp>
struct ToSpread {
  using Out = int32_t;
  static constexpr int32_t kBias = kHalf - kOffset;
  static HWY_INLINE void Store(V32 sum, int32_t* out) {
    const D32 d;
    V32 q = hn::ShiftRight<kWeightBits>(sum);
    if constexpr (kClamp) q = hn::Min(hn::Max(q, hn::Set(d, -128)), hn::Set(d, 127));
    hn::Store(Spread(q), d, out);
  }
};

// kPairs: number of pairs of taps, 0 where it is not a constant. kShared: one window for a vector.
template <class Target, size_t kPairs, bool kShared>
HWY_NOINLINE void Windows(const HorizontalTable& table, const uint8_t* in, size_t in_stride,
                          typename Target::Out* HWY_RESTRICT out) {
  const D16 d16;
  const D8 d8;
  const size_t blocks = table.blocks;
  const size_t out_stride = PlaneStride(table.outputs);
  const uint8_t* HWY_RESTRICT shuffle = table.shuffle.data();
  const int16_t* HWY_RESTRICT high = table.high.data();
  const int16_t* HWY_RESTRICT low = table.low.data();
  const int32_t* HWY_RESTRICT start = table.start.data();
  const V32 zero = hn::Zero(D32());
  const V32 bias = hn::Set(D32(), Target::kBias);
  const auto load = [&](const uint8_t* plane, size_t block) HWY_ATTR {
    if constexpr (kShared) return hn::LoadDup128(d8, plane + start[block]);
    return LoadBlocks(plane, start + block);
  };
  for (size_t block = 0; block < blocks; block += kLanes / 4) {
    const auto window0 = load(in, block);
    const auto window1 = load(in + in_stride, block);
    const auto window2 = load(in + 2 * in_stride, block);
    PairSum high0(zero), high1(zero), high2(zero), low0(bias), low1(bias), low2(bias);
    const auto add = [&](size_t pair) HWY_ATTR {
      const size_t at = pair * blocks + block;
      const auto order = hn::Load(d8, shuffle + 16 * at);
      const V16 weight_high = hn::Load(d16, high + 8 * at);
      const V16 weight_low = hn::Load(d16, low + 8 * at);
      const V16 pixels0 = hn::BitCast(d16, hn::TableLookupBytesOr0(window0, order));
      const V16 pixels1 = hn::BitCast(d16, hn::TableLookupBytesOr0(window1, order));
      const V16 pixels2 = hn::BitCast(d16, hn::TableLookupBytesOr0(window2, order));
      high0.Add(pixels0, weight_high);
      high1.Add(pixels1, weight_high);
      high2.Add(pixels2, weight_high);
      low0.Add(pixels0, weight_low);
      low1.Add(pixels1, weight_low);
      low2.Add(pixels2, weight_low);
    };
    // Written out, because gcc does not unroll such loops at -O2.
    if constexpr (kPairs >= 1) add(0);
    if constexpr (kPairs >= 2) add(1);
    for (size_t pair = 0; kPairs == 0 && pair < table.pairs; ++pair) add(pair);
    const auto store = [&](const PairSum& sum_high, const PairSum& sum_low,
                           typename Target::Out* to) HWY_ATTR {
      Target::Store(hn::Add(hn::ShiftLeft<kWeightLowBits>(sum_high.Get()), sum_low.Get()),
                    to + 4 * block);
    };
    store(high0, low0, out);
    store(high1, low1, out + out_stride);
    store(high2, low2, out + 2 * out_stride);
  }
}

// Eight bytes from each part's own place.
template <class D>
HWY_INLINE hn::Vec<D> LoadEights(D d, const uint8_t* plane, const int32_t* start) {
  if constexpr (hn::MaxLanes(D()) == 8) {
    return hn::LoadU(d, plane + start[0]);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, LoadEights(half, plane, start + hn::MaxLanes(D()) / 16),
                       LoadEights(half, plane, start));
  }
}

// Lane by lane sums of the four lanes of each part: part p of the result holds those of a, b, c and
// d.
HWY_INLINE V32 SumParts(V32 a, V32 b, V32 c, V32 d) {
  const D32 d32;
  const hn::Repartition<uint64_t, D32> d64;
  const V32 ab = hn::Add(hn::InterleaveLower(d32, a, b), hn::InterleaveUpper(d32, a, b));
  const V32 cd = hn::Add(hn::InterleaveLower(d32, c, d), hn::InterleaveUpper(d32, c, d));
  const auto ab64 = hn::BitCast(d64, ab), cd64 = hn::BitCast(d64, cd);
  return hn::Add(hn::BitCast(d32, hn::InterleaveLower(d64, ab64, cd64)),
                 hn::BitCast(d32, hn::InterleaveUpper(d64, ab64, cd64)));
}

// Each part of a vector makes one output at a time, eight taps at a time; four of them are the four
// lanes of its result.
template <class Target>
HWY_NOINLINE void Dots(const HorizontalTable& table, const uint8_t* in, size_t in_stride,
                       typename Target::Out* HWY_RESTRICT out) {
  constexpr size_t kParts = kLanes / 4;
  const D16 d16;
  const V32 zero = hn::Zero(D32()), bias = hn::Set(D32(), Target::kBias);
  const size_t out_stride = PlaneStride(table.outputs), steps = table.taps / 8;
  for (size_t plane = 0; plane < 3; ++plane, in += in_stride, out += out_stride) {
    for (size_t i = 0; i < out_stride; i += kLanes) {
      const auto dots = [&](size_t k) HWY_ATTR {  // one output of each part
        const size_t group = i / kLanes * 4 + k;
        const int32_t* const start = table.start.data() + group * kParts;
        PairSum high(zero), low(zero);
        for (size_t step = 0; step < steps; ++step) {
          const V16 pixels =
              hn::PromoteTo(d16, LoadEights(hn::Rebind<uint8_t, D16>(), in + 8 * step, start));
          const size_t at = 8 * kParts * (group * steps + step);
          high.Add(pixels, hn::Load(d16, table.high.data() + at));
          low.Add(pixels, hn::Load(d16, table.low.data() + at));
        }
        return hn::Add(hn::ShiftLeft<kWeightLowBits>(high.Get()), low.Get());
      };
      const V32 sum = SumParts(dots(0), dots(1), dots(2), dots(3));
      Target::Store(hn::Add(sum, bias), out + i);
    }
  }
}

#if HEADRACE_HAS_VNNI
// Sixteen outputs of three planes at once. kQuads: 0 where it is not a constant.
template <class Target, size_t kQuads>
HWY_NOINLINE void Digits(const HorizontalTable& table, const uint8_t* in, size_t in_stride,
                         typename Target::Out* HWY_RESTRICT out) {
  const size_t out_stride = PlaneStride(table.outputs), quads = kQuads > 0 ? kQuads : table.quads;
  const uint8_t* HWY_RESTRICT shuffle = table.shuffle.data();
  const int8_t* HWY_RESTRICT digits = table.digits.data();
  const __m512i zero = _mm512_setzero_si512(), bias = _mm512_set1_epi32(Target::kBias);
  for (size_t i = 0; i < out_stride; i += 16) {
    const uint8_t* const from = in + table.start[i / 16];
    const __m512i window0 = _mm512_loadu_si512(from);
    const __m512i window1 = _mm512_loadu_si512(from + in_stride);
    const __m512i window2 = _mm512_loadu_si512(from + 2 * in_stride);
    __m512i high0 = zero, high1 = zero, high2 = zero, middle0 = zero, middle1 = zero, middle2 = zero;
    __m512i low0 = bias, low1 = bias, low2 = bias;
    const auto add = [&]() HWY_ATTR {
      const __m512i order = _mm512_load_si512(shuffle);
      const __m512i pixels0 = _mm512_permutexvar_epi8(order, window0);
      const __m512i pixels1 = _mm512_permutexvar_epi8(order, window1);
      const __m512i pixels2 = _mm512_permutexvar_epi8(order, window2);
      const __m512i high = _mm512_load_si512(digits), middle = _mm512_load_si512(digits + 64);
      const __m512i low = _mm512_load_si512(digits + 128);
      high0 = AddDotOfBytes(high0, pixels0, high);
      high1 = AddDotOfBytes(high1, pixels1, high);
      high2 = AddDotOfBytes(high2, pixels2, high);
      middle0 = AddDotOfBytes(middle0, pixels0, middle);
      middle1 = AddDotOfBytes(middle1, pixels1, middle);
      middle2 = AddDotOfBytes(middle2, pixels2, middle);
      low0 = AddDotOfBytes(low0, pixels0, low);
      low1 = AddDotOfBytes(low1, pixels1, low);
      low2 = AddDotOfBytes(low2, pixels2, low);
      shuffle += 64;
      digits += 3 * 64;
    };
    if constexpr (kQuads >= 1) add();
    if constexpr (kQuads >= 2) add();
    for (size_t quad = 0; kQuads == 0 && quad < quads; ++quad) add();
    const auto store = [&](__m512i high, __m512i middle, __m512i low, typename Target::Out* to) HWY_ATTR {
      const __m512i upper = _mm512_add_epi32(_mm512_slli_epi32(high, 8), middle);
      Target::Store(V32{_mm512_add_epi32(_mm512_slli_epi32(upper, 8), low)}, to + i);
    };
    store(high0, middle0, low0, out);
    store(high1, middle1, low1, out + out_stride);
    store(high2, middle2, low2, out + 2 * out_stride);
  }
}
#endif

template <class Target, bool kShared>
void AllWindows(const HorizontalTable& table, const uint8_t* in, size_t in_stride,
                typename Target::Out* out) {
  if (table.pairs == 1) return Windows<Target, 1, kShared>(table, in, in_stride, out);
  if (table.pairs == 2) return Windows<Target, 2, kShared>(table, in, in_stride, out);
  Windows<Target, 0, kShared>(table, in, in_stride, out);
}

template <class Target>
void Horizontal(const HorizontalTable& table, const uint8_t* in, size_t in_stride,
                typename Target::Out* out) {
#if HEADRACE_HAS_VNNI
  if (table.kind == HorizontalTable::Kind::kDigits) {
    if (table.quads == 1) return Digits<Target, 1>(table, in, in_stride, out);
    if (table.quads == 2) return Digits<Target, 2>(table, in, in_stride, out);
    return Digits<Target, 0>(table, in, in_stride, out);
  }
#endif
  if (table.kind == HorizontalTable::Kind::kDots) return Dots<Target>(table, in, in_stride, out);
  if (table.shared == kLanes) return AllWindows<Target, true>(table, in, in_stride, out);
  AllWindows<Target, false>(table, in, in_stride, out);
}

void ResizeRow(const HorizontalTable& table, const uint8_t* in, size_t in_stride, uint8_t* out) {
  Horizontal<ToBytes>(table, in, in_stride, out);
}
void ResizeRowSpread(const HorizontalTable& table, const uint8_t* in, size_t in_stride,
                     int32_t* out) {
  if (table.overshoots) return Horizontal<ToSpread<true> >(table, in, in_stride, out);
  Horizontal<ToSpread<false> >(table, in, in_stride, out);
}

// Four vectors of sums to bytes, in order.
HWY_INLINE void StoreFour(V32 v0, V32 v1, V32 v2, V32 v3, uint8_t* out) {
#if HWY_TARGET == HWY_AVX2
  // Packing works within 128-bit blocks; one permutation puts all right. Highway's DemoteTo pays it
  // for each vector.
  const __m256i words =
      _mm256_packus_epi16(_mm256_packs_epi32(v0.raw, v1.raw), _mm256_packs_epi32(v2.raw, v3.raw));
  const __m256i bytes =
      _mm256_permutevar8x32_epi32(words, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), bytes);
#else
  const D8Of32 d;
  hn::StoreU(hn::DemoteTo(d, v0), d, out);
  hn::StoreU(hn::DemoteTo(d, v1), d, out + kLanes);
  hn::StoreU(hn::DemoteTo(d, v2), d, out + 2 * kLanes);
  hn::StoreU(hn::DemoteTo(d, v3), d, out + 3 * kLanes);
#endif
}

// kTaps: how many rows, 0 where it is not a constant; a constant keeps the weights in registers.
template <int kTaps>
HWY_NOINLINE void Blend(const int32_t* const* rows, const int32_t* weights, int taps, int32_t bias,
                        size_t n, uint8_t* HWY_RESTRICT out) {
  const V32 first = hn::Set(D32(), bias);
  const auto weight = [&](int t)
                          HWY_ATTR { return hn::BitCast(D16(), hn::Set(D32(), weights[t])); };
  const auto load = [](const int32_t* from)
                        HWY_ATTR { return hn::BitCast(D16(), hn::Load(D32(), from)); };
  const V16 weight0 = weight(0);
  const V16 weight1 = weight(kTaps > 1 ? 1 : 0);
  const V16 weight2 = weight(kTaps > 2 ? 2 : 0);
  const V16 weight3 = weight(kTaps > 3 ? 3 : 0);
  size_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    PairSum sum0(first), sum1(first), sum2(first), sum3(first);
    const auto add = [&](int t, V16 w) HWY_ATTR {
      const int32_t* HWY_RESTRICT row = rows[t] + i;
      sum0.Add(load(row), w);
      sum1.Add(load(row + kLanes), w);
      sum2.Add(load(row + 2 * kLanes), w);
      sum3.Add(load(row + 3 * kLanes), w);
    };
    if constexpr (kTaps > 0) add(0, weight0);
    if constexpr (kTaps > 1) add(1, weight1);
    if constexpr (kTaps > 2) add(2, weight2);
    if constexpr (kTaps > 3) add(3, weight3);
    for (int t = 0; kTaps == 0 && t < taps; ++t) add(t, weight(t));
    StoreFour(hn::ShiftRight<kWeightBits>(sum0.Get()), hn::ShiftRight<kWeightBits>(sum1.Get()),
              hn::ShiftRight<kWeightBits>(sum2.Get()), hn::ShiftRight<kWeightBits>(sum3.Get()),
              out + i);
  }
  for (; i < n; i += kLanes) {
    PairSum sum(first);
    for (int t = 0; t < taps; ++t) sum.Add(load(rows[t] + i), weight(t));
    hn::StoreU(hn::DemoteTo(D8Of32(), hn::ShiftRight<kWeightBits>(sum.Get())), D8Of32(), out + i);
  }
}

void BlendRows(const int32_t* const* rows, const int32_t* weights, int taps, int32_t bias, size_t n,
               uint8_t* out) {
  switch (taps) {
    case 1:
      return Blend<1>(rows, weights, taps, bias, n, out);
    case 2:
      return Blend<2>(rows, weights, taps, bias, n, out);
    case 3:
      return Blend<3>(rows, weights, taps, bias, n, out);
    case 4:
      return Blend<4>(rows, weights, taps, bias, n, out);
    default:
      return Blend<0>(rows, weights, taps, bias, n, out);
  }
}

void SplitRow(const uint8_t* rgb, int width, uint8_t* planes) {
  const size_t stride = PlaneStride(width);
  size_t x = 0;
  const auto split = [&](auto d) HWY_ATTR {
    hn::Vec<decltype(d)> red, green, blue;
    hn::LoadInterleaved3(d, rgb + 3 * x, red, green, blue);
    hn::StoreU(red, d, planes + x);
    hn::StoreU(green, d, planes + stride + x);
    hn::StoreU(blue, d, planes + 2 * stride + x);
    x += hn::Lanes(d);
  };
  while (x + hn::Lanes(D8()) <= static_cast<size_t>(width)) split(D8());
  while (x < static_cast<size_t>(width)) split(hn::Full128<uint8_t>());
}

void MergeRow(const uint8_t* planes, size_t stride, int width, uint8_t* rgb) {
  const hn::Full128<uint8_t> d;
  const size_t n = static_cast<size_t>(width);
  size_t x = 0;
  for (; x + 16 <= n; x += 16) {
    hn::StoreInterleaved3(hn::LoadU(d, planes + x), hn::LoadU(d, planes + stride + x),
                          hn::LoadU(d, planes + 2 * stride + x), d, rgb + 3 * x);
  }
  for (; x < n; ++x) {
    for (size_t c = 0; c < 3; ++c) rgb[3 * x + c] = planes[c * stride + x];
  }
}

void MirrorRow(const uint8_t* in, size_t in_stride, int width, uint8_t* out) {
  const hn::Full128<uint8_t> d;
  const size_t stride = PlaneStride(width);
  const size_t n = static_cast<size_t>(width);
  const auto reversed = hn::Sub(hn::Set(d, 15), hn::Iota(d, 0));
  for (size_t c = 0; c < 3; ++c, in += in_stride, out += stride) {
    size_t x = 0;
    for (; x + 16 <= n; x += 16)
      hn::StoreU(hn::TableLookupBytes(hn::LoadU(d, in + n - 16 - x), reversed), d, out + x);
    for (; x < n; ++x) out[x] = in[n - 1 - x];
  }
}

void SpreadRow(const uint8_t* HWY_RESTRICT in, size_t in_stride, size_t n,
               int32_t* HWY_RESTRICT out) {
  const D32 d32;
  for (size_t c = 0; c < 3; ++c, in += in_stride, out += n) {
    for (size_t i = 0; i < n; i += kLanes) {
      const V32 p = hn::PromoteTo(d32, hn::LoadU(D8Of32(), in + i));
      hn::Store(Spread(hn::Sub(p, hn::Set(d32, 128))), d32, out + i);
    }
  }
}

#endif  // with SIMD

const ResizeKernels* GetKernels() {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  constexpr size_t kLanes = 4;
#endif
  static const ResizeKernels kKernels = {hwy::TargetName(HWY_TARGET),
                                         kLanes,
                                         HEADRACE_HAS_VNNI != 0,
                                         SplitRow,
                                         MergeRow,
                                         MirrorRow,
                                         SpreadRow,
                                         ResizeRow,
                                         ResizeRowSpread,
                                         BlendRows};
  return &kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace headrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headrace {

HWY_EXPORT(GetKernels);

const ResizeKernels& ActiveResizeKernels() { return *HWY_DYNAMIC_DISPATCH(GetKernels)(); }

}  // namespace headrace
#endif  // HWY_ONCE
