// Inverse DCT, per SIMD target: libjpeg-turbo's accurate integer transform ("islow": Loeffler, Ligtenberg and Moschytz,
// "Practical fast 1-D DCT algorithms with 11 multiplications", ICASSP 1989) as its SIMD versions compute it
// (jidctint-sse2.asm). Dequantised coefficients and three sums wrap at 16 bits, results saturate; that this is libjpeg-turbo's
// answer for coefficients that do wrap is not shown yet (with quantisers of up to 255 on random data it differs).
#if defined(HEADRACE_IDCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADRACE_IDCT_INL_H_
#undef HEADRACE_IDCT_INL_H_
#else
#define HEADRACE_IDCT_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/decode/segment/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace headrace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One vector holds a row of as many blocks as it has 128-bit parts.
using IdctD16 = hn::CappedTag<int16_t, 32>;
using IdctD32 = hn::Repartition<int32_t, IdctD16>;
using IdctD8 = hn::Repartition<uint8_t, IdctD16>;
using IdctV16 = hn::Vec<IdctD16>;
using IdctV32 = hn::Vec<IdctD32>;
constexpr int kIdctBlocks = static_cast<int>(hn::MaxLanes(IdctD16()) / 8);

// Saturating narrowing part by part: in each 128-bit part a's lanes, then b's. Highway 1.0 has no such operation for bytes.
#if HWY_ARCH_X86
HWY_INLINE hn::Vec128<int16_t> PackParts(hn::Vec128<int32_t> a, hn::Vec128<int32_t> b) {
  return hn::Vec128<int16_t>{_mm_packs_epi32(a.raw, b.raw)};
}
HWY_INLINE hn::Vec128<int8_t> PackParts(hn::Vec128<int16_t> a, hn::Vec128<int16_t> b) {
  return hn::Vec128<int8_t>{_mm_packs_epi16(a.raw, b.raw)};
}
#if HWY_TARGET <= HWY_AVX2
HWY_INLINE hn::Vec256<int16_t> PackParts(hn::Vec256<int32_t> a, hn::Vec256<int32_t> b) {
  return hn::Vec256<int16_t>{_mm256_packs_epi32(a.raw, b.raw)};
}
HWY_INLINE hn::Vec256<int8_t> PackParts(hn::Vec256<int16_t> a, hn::Vec256<int16_t> b) {
  return hn::Vec256<int8_t>{_mm256_packs_epi16(a.raw, b.raw)};
}
#endif
#if HWY_TARGET <= HWY_AVX3
HWY_INLINE hn::Vec512<int16_t> PackParts(hn::Vec512<int32_t> a, hn::Vec512<int32_t> b) {
  return hn::Vec512<int16_t>{_mm512_packs_epi32(a.raw, b.raw)};
}
HWY_INLINE hn::Vec512<int8_t> PackParts(hn::Vec512<int16_t> a, hn::Vec512<int16_t> b) {
  return hn::Vec512<int8_t>{_mm512_packs_epi16(a.raw, b.raw)};
}
#endif
#else
template <class V>
HWY_INLINE auto PackParts(V a, V b) {  // vectors of one part
  const hn::Repartition<hwy::MakeNarrow<hn::TFromV<V>>, hn::DFromV<V>> d;
  const hn::Half<decltype(d)> half;
  return hn::Combine(d, hn::DemoteTo(half, b), hn::DemoteTo(half, a));
}
#endif

// 13-bit fixed point.
constexpr int kF0_298 = 2446, kF0_390 = 3196, kF0_541 = 4433, kF0_765 = 6270, kF0_899 = 7373, kF1_175 = 9633,
              kF1_501 = 12299, kF1_847 = 15137, kF1_961 = 16069, kF2_053 = 16819, kF2_562 = 20995, kF3_072 = 25172;

// Pairs (even lane, odd lane) × (a, b), summed to 32 bits.
HWY_INLINE IdctV32 MultiplyPairs(IdctV16 pairs, int a, int b) {
  const IdctD16 d16;
  const IdctD32 d32;
  const auto weights = hn::BitCast(d16, hn::Set(d32, static_cast<int32_t>((a & 0xFFFF) | static_cast<uint32_t>(b) << 16)));
  auto odd = hn::Zero(d32);
  const auto even = hn::ReorderWidenMulAccumulate(d32, pairs, weights, hn::Zero(d32), odd);
  return hn::RearrangeToOddPlusEven(even, odd);
}

// 16 bits to 32, times 2^13.
HWY_INLINE IdctV32 ScaleLower(IdctV16 v) {
  return hn::ShiftRight<3>(hn::BitCast(IdctD32(), hn::InterleaveLower(IdctD16(), hn::Zero(IdctD16()), v)));
}
HWY_INLINE IdctV32 ScaleUpper(IdctV16 v) {
  return hn::ShiftRight<3>(hn::BitCast(IdctD32(), hn::InterleaveUpper(IdctD16(), hn::Zero(IdctD16()), v)));
}

// The 1-D transform of half of the lanes, from interleaved inputs.
template <int kShift>
HWY_INLINE void Transform(IdctV32 sum04, IdctV32 difference04, IdctV16 in26, IdctV16 in71, IdctV16 in53, IdctV16 z34,
                          IdctV32* out) {
  const IdctV32 round = hn::Set(IdctD32(), 1 << (kShift - 1));
  const IdctV32 even3 = MultiplyPairs(in26, kF0_541 + kF0_765, kF0_541);
  const IdctV32 even2 = MultiplyPairs(in26, kF0_541, kF0_541 - kF1_847);
  const IdctV32 t10 = hn::Add(hn::Add(sum04, even3), round), t13 = hn::Add(hn::Sub(sum04, even3), round);
  const IdctV32 t11 = hn::Add(hn::Add(difference04, even2), round);
  const IdctV32 t12 = hn::Add(hn::Sub(difference04, even2), round);
  const IdctV32 z3 = MultiplyPairs(z34, kF1_175 - kF1_961, kF1_175);
  const IdctV32 z4 = MultiplyPairs(z34, kF1_175, kF1_175 - kF0_390);
  const IdctV32 odd0 = hn::Add(MultiplyPairs(in71, kF0_298 - kF0_899, -kF0_899), z3);
  const IdctV32 odd3 = hn::Add(MultiplyPairs(in71, -kF0_899, kF1_501 - kF0_899), z4);
  const IdctV32 odd1 = hn::Add(MultiplyPairs(in53, kF2_053 - kF2_562, -kF2_562), z4);
  const IdctV32 odd2 = hn::Add(MultiplyPairs(in53, -kF2_562, kF3_072 - kF2_562), z3);
  out[0] = hn::ShiftRight<kShift>(hn::Add(t10, odd3));
  out[7] = hn::ShiftRight<kShift>(hn::Sub(t10, odd3));
  out[1] = hn::ShiftRight<kShift>(hn::Add(t11, odd2));
  out[6] = hn::ShiftRight<kShift>(hn::Sub(t11, odd2));
  out[2] = hn::ShiftRight<kShift>(hn::Add(t12, odd1));
  out[5] = hn::ShiftRight<kShift>(hn::Sub(t12, odd1));
  out[3] = hn::ShiftRight<kShift>(hn::Add(t13, odd0));
  out[4] = hn::ShiftRight<kShift>(hn::Sub(t13, odd0));
}

// One pass over the eight rows in v: lane by lane a 1-D transform.
template <int kShift>
HWY_INLINE void Pass(IdctV16* v) {
  const IdctD16 d;
  IdctV32 lower[8], upper[8];
  const IdctV16 sum04 = hn::Add(v[0], v[4]), difference04 = hn::Sub(v[0], v[4]);
  const IdctV16 z3 = hn::Add(v[3], v[7]), z4 = hn::Add(v[1], v[5]);
  Transform<kShift>(ScaleLower(sum04), ScaleLower(difference04), hn::InterleaveLower(d, v[2], v[6]),
                    hn::InterleaveLower(d, v[7], v[1]), hn::InterleaveLower(d, v[5], v[3]),
                    hn::InterleaveLower(d, z3, z4), lower);
  Transform<kShift>(ScaleUpper(sum04), ScaleUpper(difference04), hn::InterleaveUpper(d, v[2], v[6]),
                    hn::InterleaveUpper(d, v[7], v[1]), hn::InterleaveUpper(d, v[5], v[3]),
                    hn::InterleaveUpper(d, z3, z4), upper);
  for (int i = 0; i < 8; ++i) v[i] = PackParts(lower[i], upper[i]);
}

// 8 × 8 within each 128-bit part.
HWY_INLINE void TransposeBlocks(IdctV16* v) {
  const IdctD16 d16;
  IdctV16 a[8], b[8];
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = hn::InterleaveLower(d16, v[i], v[i + 4]);
    a[2 * i + 1] = hn::InterleaveUpper(d16, v[i], v[i + 4]);
  }
  for (int i = 0; i < 4; ++i) {
    b[2 * i] = hn::InterleaveLower(d16, a[i], a[i + 4]);
    b[2 * i + 1] = hn::InterleaveUpper(d16, a[i], a[i + 4]);
  }
  for (int i = 0; i < 4; ++i) {
    v[2 * i] = hn::InterleaveLower(d16, b[i], b[i + 4]);
    v[2 * i + 1] = hn::InterleaveUpper(d16, b[i], b[i + 4]);
  }
}

// Row `row` of as many blocks as a vector has parts.
template <class D>
HWY_INLINE hn::Vec<D> LoadRows(D d, const IdctBlock* blocks, int row) {
  if constexpr (hn::MaxLanes(D()) == 8) {
    return hn::Load(d, blocks[0].coefficients + 8 * row);
  } else {
    const hn::Half<D> half;
    constexpr int kHalfBlocks = static_cast<int>(hn::MaxLanes(D()) / 16);
    return hn::Combine(d, LoadRows(half, blocks + kHalfBlocks, row), LoadRows(half, blocks, row));
  }
}

// kIdctBlocks blocks, of which `count` are stored.
HWY_INLINE void IdctBlocks(const IdctBlock* blocks, int count, const uint16_t* quant, size_t stride) {
  const IdctD16 d;
  IdctV16 v[8];
  v[0] = LoadRows(d, blocks, 0);
  IdctV16 rest = hn::Zero(d);
  for (int i = 1; i < 8; ++i) {
    v[i] = LoadRows(d, blocks, i);
    rest = hn::Or(rest, v[i]);
  }
  for (int i = 0; i < 8; ++i) {
    const auto q = hn::LoadDup128(d, reinterpret_cast<const int16_t*>(quant) + 8 * i);
    v[i] = hn::Mul(v[i], q);
  }
  if (hn::AllTrue(d, hn::Eq(rest, hn::Zero(d)))) {
    // libjpeg-turbo's shortcut: it wraps where the full pass would saturate.
    const IdctV16 scaled = hn::ShiftLeft<2>(v[0]);
    for (int i = 0; i < 8; ++i) v[i] = scaled;
  } else {
    Pass<11>(v);
  }
  TransposeBlocks(v);
  Pass<18>(v);
  // v[x] holds column x, its eight rows in each part. Saturate to bytes around 128 and transpose back.
  const IdctD8 d8;
  const auto bias = hn::Set(d8, 0x80);
  hn::Vec<IdctD8> p[4];
  for (int i = 0; i < 4; ++i) {
    // Lower half: column i, upper half: column i + 4.
    p[i] = hn::Xor(hn::BitCast(d8, PackParts(v[i], v[i + 4])), bias);
  }
  // Bytes (c0 c4) (c1 c5) (c2 c6) (c3 c7) → rows.
  const auto a0 = hn::InterleaveLower(d8, p[0], p[2]), a1 = hn::InterleaveUpper(d8, p[0], p[2]);  // c0 c2 | c4 c6
  const auto a2 = hn::InterleaveLower(d8, p[1], p[3]), a3 = hn::InterleaveUpper(d8, p[1], p[3]);  // c1 c3 | c5 c7
  const auto b0 = hn::InterleaveLower(d8, a0, a2), b1 = hn::InterleaveUpper(d8, a0, a2);  // c0…c3, rows 0–3 | 4–7
  const auto b2 = hn::InterleaveLower(d8, a1, a3), b3 = hn::InterleaveUpper(d8, a1, a3);  // c4…c7
  const hn::Repartition<uint32_t, IdctD16> du32;
  const auto w0 = hn::BitCast(du32, b0), w1 = hn::BitCast(du32, b1), w2 = hn::BitCast(du32, b2), w3 = hn::BitCast(du32, b3);
  hn::Vec<IdctD8> rows[4] = {hn::BitCast(d8, hn::InterleaveLower(du32, w0, w2)), hn::BitCast(d8, hn::InterleaveUpper(du32, w0, w2)),
                             hn::BitCast(d8, hn::InterleaveLower(du32, w1, w3)), hn::BitCast(d8, hn::InterleaveUpper(du32, w1, w3))};
  alignas(64) uint8_t buffer[16 * kIdctBlocks];
  for (int i = 0; i < 4; ++i) {  // rows[i]: in each part row 2i, then row 2i + 1
    hn::Store(rows[i], d8, buffer);
    for (int b = 0; b < count; ++b) {
      std::memcpy(blocks[b].out + 2 * i * stride, buffer + 16 * b, 8);
      std::memcpy(blocks[b].out + (2 * i + 1) * stride, buffer + 16 * b + 8, 8);
    }
  }
  const auto zero = hn::Zero(d);
  for (int b = 0; b < count; ++b) {
    for (size_t i = 0; i < 64; i += hn::Lanes(d)) hn::StoreU(zero, d, blocks[b].coefficients + i);
  }
}

void Idct(const IdctBlock* blocks, int n, const uint16_t* quant, size_t stride) {
  int i = 0;
  for (; i + kIdctBlocks <= n; i += kIdctBlocks) IdctBlocks(blocks + i, kIdctBlocks, quant, stride);
  if (i < n) {
    IdctBlock last[kIdctBlocks];
    for (int b = 0; b < kIdctBlocks; ++b) last[b] = blocks[std::min(i + b, n - 1)];
    IdctBlocks(last, n - i, quant, stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace headrace
HWY_AFTER_NAMESPACE();

#endif  // include guard
