// Inverse DCT, per SIMD target: libjpeg-turbo's accurate integer transform ("islow": Loeffler, Ligtenberg and Moschytz,
// "Practical fast 1-D DCT algorithms with 11 multiplications", ICASSP 1989) as its SIMD versions compute it
// (jidctint-sse2.asm). Dequantised coefficients and three sums wrap at 16 bits, results saturate.
#if defined(HEADRACE_IDCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADRACE_IDCT_INL_H_
#undef HEADRACE_IDCT_INL_H_
#else
#define HEADRACE_IDCT_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

#include "core/decode/segment/kernels.h"
#include "core/decode/segment/pack_parts-inl.h"

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

// T.81, figure 5 (kNaturalOrder of jpeg_frame.h, for the compiler).
constexpr uint8_t kZigzagToNatural[64] = {0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,
                                          12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28,
                                          35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
                                          58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

// The place in zigzag order of each coefficient in natural order.
constexpr std::array<uint16_t, 64> MakePlaces() {
  std::array<uint16_t, 64> places = {};
  for (size_t k = 0; k < 64; ++k) places[kZigzagToNatural[k]] = static_cast<uint16_t>(k);
  return places;
}

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

// Eight coefficients from `eighth` · 8 on of as many blocks as a vector has parts.
template <class D>
HWY_INLINE hn::Vec<D> LoadEighth(D d, const IdctBlock* blocks, int eighth) {
  if constexpr (hn::MaxLanes(D()) == 8) {
    return hn::Load(d, blocks[0].coefficients + 8 * eighth);
  } else {
    const hn::Half<D> half;
    constexpr int kHalfBlocks = static_cast<int>(hn::MaxLanes(D()) / 16);
    return hn::Combine(d, LoadEighth(half, blocks + kHalfBlocks, eighth), LoadEighth(half, blocks, eighth));
  }
}

// The same, dequantised.
HWY_INLINE IdctV16 Dequantized(const IdctBlock* blocks, const uint16_t* quant, int eighth) {
  const IdctD16 d;
  return hn::Mul(LoadEighth(d, blocks, eighth), hn::LoadDup128(d, reinterpret_cast<const int16_t*>(quant) + 8 * eighth));
}

// Which coefficients, in zigzag order, of the first 32 lie outside the first four rows and columns, and outside the first row.
// All behind them lie outside both.
struct ZigzagMasks {
  int16_t beyond_quarter[32], beyond_row[32];
};
constexpr ZigzagMasks MakeZigzagMasks() {
  ZigzagMasks masks = {};
  for (int k = 0; k < 32; ++k) {
    const int row = kZigzagToNatural[k] / 8, column = kZigzagToNatural[k] % 8;
    masks.beyond_quarter[k] = row >= 4 || column >= 4 ? -1 : 0;
    masks.beyond_row[k] = row >= 1 ? -1 : 0;
  }
  return masks;
}
alignas(64) constexpr ZigzagMasks kZigzagMasks = MakeZigzagMasks();

#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
// Four blocks; each of the permutations makes four rows of one.
template <int kRows>
HWY_INLINE void LoadNatural(const IdctBlock* blocks, const uint16_t* quant, IdctV16* v) {
  alignas(64) static constexpr auto kPlaces = MakePlaces();
  const hn::Full512<int16_t> d;
  const auto quant0 = hn::Load(d, reinterpret_cast<const int16_t*>(quant));
  const auto quant1 = hn::Load(d, reinterpret_cast<const int16_t*>(quant) + 32);
  for (int half = 0; half < kRows / 4; ++half) {
    const __m512i places = _mm512_load_si512(kPlaces.data() + 32 * half);
    __m512i rows[4];
    for (int b = 0; b < 4; ++b) {
      const auto z0 = hn::Mul(hn::Load(d, blocks[b].coefficients), quant0);
      const auto z1 = hn::Mul(hn::Load(d, blocks[b].coefficients + 32), quant1);
      rows[b] = _mm512_permutex2var_epi16(z0.raw, places, z1.raw);
    }
    // A row of each block: a transposition of parts.
    const __m512i a = _mm512_shuffle_i64x2(rows[0], rows[1], 0x44), b = _mm512_shuffle_i64x2(rows[2], rows[3], 0x44);
    const __m512i c = _mm512_shuffle_i64x2(rows[0], rows[1], 0xEE), e = _mm512_shuffle_i64x2(rows[2], rows[3], 0xEE);
    v[4 * half] = IdctV16{_mm512_shuffle_i64x2(a, b, 0x88)};
    v[4 * half + 1] = IdctV16{_mm512_shuffle_i64x2(a, b, 0xDD)};
    v[4 * half + 2] = IdctV16{_mm512_shuffle_i64x2(c, e, 0x88)};
    v[4 * half + 3] = IdctV16{_mm512_shuffle_i64x2(c, e, 0xDD)};
  }
}
#else
// The part of row kRow (its first kColumns columns) that lies in the eighth kEighth of the zigzag order, as a byte shuffle.
template <int kRow, int kEighth>
struct RowShuffle {
  struct Bytes {
    uint8_t bytes[32];
    bool any[2];  // of four columns, of eight
  };
  static constexpr Bytes Make() {
    Bytes made = {};
    for (int i = 0; i < 16; ++i) made.bytes[i] = made.bytes[i + 16] = 0x80;
    for (int k = 8 * kEighth; k < 8 * kEighth + 8; ++k) {
      if (kZigzagToNatural[k] / 8 != kRow) continue;
      const int column = kZigzagToNatural[k] % 8, from = k % 8;
      for (int part = 0; part < 32; part += 16) {
        made.bytes[part + 2 * column] = static_cast<uint8_t>(2 * from);
        made.bytes[part + 2 * column + 1] = static_cast<uint8_t>(2 * from + 1);
      }
      made.any[1] = true;
      made.any[0] |= column < 4;
    }
    return made;
  }
  alignas(32) static constexpr Bytes kBytes = Make();
};

template <int kRow, int kRows, int... kEighths>
HWY_INLINE IdctV16 NaturalRow(const IdctV16* z, std::integer_sequence<int, kEighths...>) {
  const IdctD8 d8;
  auto row = hn::Zero(d8);
  const auto add = [&](auto eighth) HWY_ATTR {
    using Shuffle = RowShuffle<kRow, decltype(eighth)::value>;
    if constexpr (Shuffle::kBytes.any[kRows / 8]) {
      row = hn::Or(row, hn::TableLookupBytesOr0(hn::BitCast(d8, z[decltype(eighth)::value]), hn::Load(d8, Shuffle::kBytes.bytes)));
    }
  };
  (add(std::integral_constant<int, kEighths>()), ...);
  return hn::BitCast(IdctD16(), row);
}

// The first kRows rows and as many columns of kIdctBlocks blocks, dequantised, in natural order.
template <int kRows>
HWY_INLINE void LoadNatural(const IdctBlock* blocks, const uint16_t* quant, IdctV16* v) {
  constexpr auto kEighths = std::make_integer_sequence<int, kRows>();
  IdctV16 z[kRows];
  for (int i = 0; i < kRows; ++i) z[i] = Dequantized(blocks, quant, i);
  v[0] = NaturalRow<0, kRows>(z, kEighths);
  v[1] = NaturalRow<1, kRows>(z, kEighths);
  v[2] = NaturalRow<2, kRows>(z, kEighths);
  v[3] = NaturalRow<3, kRows>(z, kEighths);
  if constexpr (kRows == 8) {
    v[4] = NaturalRow<4, kRows>(z, kEighths);
    v[5] = NaturalRow<5, kRows>(z, kEighths);
    v[6] = NaturalRow<6, kRows>(z, kEighths);
    v[7] = NaturalRow<7, kRows>(z, kEighths);
  }
}
#endif

// Stores eight bytes at each of two places for each part of `rows`: part b's at blocks[b].out, `row` and `row` + 1.
#if HWY_ARCH_X86
HWY_INLINE void StoreRowPair(hn::Vec128<uint8_t> rows, const IdctBlock* blocks, size_t offset, size_t stride) {
  auto* out = reinterpret_cast<double*>(blocks->out + offset);
  _mm_storel_pd(out, _mm_castsi128_pd(rows.raw));
  _mm_storeh_pd(reinterpret_cast<double*>(blocks->out + offset + stride), _mm_castsi128_pd(rows.raw));
}
#if HWY_TARGET <= HWY_AVX2
HWY_INLINE void StoreRowPair(hn::Vec256<uint8_t> rows, const IdctBlock* blocks, size_t offset, size_t stride) {
  const hn::Full128<uint8_t> half;
  StoreRowPair(hn::LowerHalf(half, rows), blocks, offset, stride);
  StoreRowPair(hn::UpperHalf(half, rows), blocks + 1, offset, stride);
}
#endif
#if HWY_TARGET <= HWY_AVX3
HWY_INLINE void StoreRowPair(hn::Vec512<uint8_t> rows, const IdctBlock* blocks, size_t offset, size_t stride) {
  const hn::Full256<uint8_t> half;
  StoreRowPair(hn::LowerHalf(half, rows), blocks, offset, stride);
  StoreRowPair(hn::UpperHalf(half, rows), blocks + 2, offset, stride);
}
#endif
#else
template <class V>
HWY_INLINE void StoreRowPair(V rows, const IdctBlock* blocks, size_t offset, size_t stride) {
  alignas(64) uint8_t buffer[16 * kIdctBlocks];
  hn::Store(rows, IdctD8(), buffer);
  for (int b = 0; b < kIdctBlocks; ++b) {
    std::memcpy(blocks[b].out + offset, buffer + 16 * b, 8);
    std::memcpy(blocks[b].out + offset + stride, buffer + 16 * b + 8, 8);
  }
}
#endif

// v[x] holds column x, its eight rows in each part: saturates to bytes around 128, transposes back and stores.
HWY_INLINE void StoreBlocks(const IdctV16* v, const IdctBlock* blocks, size_t stride) {
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
  const hn::Repartition<uint32_t, IdctD16> d32;
  const auto b0 = hn::BitCast(d32, hn::InterleaveLower(d8, a0, a2));  // c0 … c3, rows 0 … 3
  const auto b1 = hn::BitCast(d32, hn::InterleaveUpper(d8, a0, a2));  // rows 4 … 7
  const auto b2 = hn::BitCast(d32, hn::InterleaveLower(d8, a1, a3));  // c4 … c7
  const auto b3 = hn::BitCast(d32, hn::InterleaveUpper(d8, a1, a3));
  StoreRowPair(hn::BitCast(d8, hn::InterleaveLower(d32, b0, b2)), blocks, 0, stride);
  StoreRowPair(hn::BitCast(d8, hn::InterleaveUpper(d32, b0, b2)), blocks, 2 * stride, stride);
  StoreRowPair(hn::BitCast(d8, hn::InterleaveLower(d32, b1, b3)), blocks, 4 * stride, stride);
  StoreRowPair(hn::BitCast(d8, hn::InterleaveUpper(d32, b1, b3)), blocks, 6 * stride, stride);
}

// Zeros to the blocks' first `count` coefficients.
HWY_INLINE void ClearBlocks(const IdctBlock* blocks, size_t count) {
  const hn::CappedTag<int16_t, 32> d;
  for (int b = 0; b < kIdctBlocks; ++b) {
    for (size_t k = 0; k < count; k += hn::Lanes(d)) hn::Store(hn::Zero(d), d, blocks[b].coefficients + k);
  }
}

// Blocks without restriction.
HWY_INLINE void IdctAny(const IdctBlock* blocks, const uint16_t* quant, size_t stride) {
  IdctV16 v[8];
  LoadNatural<8>(blocks, quant, v);
  ClearBlocks(blocks, 64);
  Pass<11>(v);
  TransposeBlocks(v);
  Pass<18>(v);
  StoreBlocks(v, blocks, stride);
}

// Blocks whose first row alone is not zero. libjpeg-turbo's shortcut wraps where the full first pass would saturate.
HWY_INLINE void IdctFirstRow(const IdctBlock* blocks, const uint16_t* quant, size_t stride) {
  IdctV16 v[8];
  LoadNatural<8>(blocks, quant, v);
  ClearBlocks(blocks, 32);
  v[0] = hn::ShiftLeft<2>(v[0]);
  for (int i = 1; i < 8; ++i) v[i] = v[0];
  TransposeBlocks(v);
  Pass<18>(v);
  StoreBlocks(v, blocks, stride);
}

// The 1-D transform where the upper four inputs are zero: from pairs of (in0, in2) and of (in1, in3).
template <int kShift>
HWY_INLINE void TransformFour(IdctV16 in02, IdctV16 in13, IdctV32* out) {
  const IdctV32 round = hn::Set(IdctD32(), 1 << (kShift - 1));
  const IdctV32 t10 = hn::Add(MultiplyPairs(in02, 1 << 13, kF0_541 + kF0_765), round);
  const IdctV32 t13 = hn::Add(MultiplyPairs(in02, 1 << 13, -kF0_541 - kF0_765), round);
  const IdctV32 t11 = hn::Add(MultiplyPairs(in02, 1 << 13, kF0_541), round);
  const IdctV32 t12 = hn::Add(MultiplyPairs(in02, 1 << 13, -kF0_541), round);
  const IdctV32 odd0 = MultiplyPairs(in13, kF1_175 - kF0_899, kF1_175 - kF1_961);
  const IdctV32 odd1 = MultiplyPairs(in13, kF1_175 - kF0_390, kF1_175 - kF2_562);
  const IdctV32 odd2 = MultiplyPairs(in13, kF1_175, kF3_072 - kF2_562 + kF1_175 - kF1_961);
  const IdctV32 odd3 = MultiplyPairs(in13, kF1_501 - kF0_899 + kF1_175 - kF0_390, kF1_175);
  out[0] = hn::ShiftRight<kShift>(hn::Add(t10, odd3));
  out[7] = hn::ShiftRight<kShift>(hn::Sub(t10, odd3));
  out[1] = hn::ShiftRight<kShift>(hn::Add(t11, odd2));
  out[6] = hn::ShiftRight<kShift>(hn::Sub(t11, odd2));
  out[2] = hn::ShiftRight<kShift>(hn::Add(t12, odd1));
  out[5] = hn::ShiftRight<kShift>(hn::Sub(t12, odd1));
  out[3] = hn::ShiftRight<kShift>(hn::Add(t13, odd0));
  out[4] = hn::ShiftRight<kShift>(hn::Sub(t13, odd0));
}

// Blocks of which only the first four rows and columns are not zero.
HWY_INLINE void IdctQuarter(const IdctBlock* blocks, const uint16_t* quant, size_t stride) {
  const IdctD16 d;
  IdctV16 in[4], t[4];
  IdctV32 lower[8], upper[8];
  LoadNatural<4>(blocks, quant, in);
  ClearBlocks(blocks, 32);
  TransformFour<11>(hn::InterleaveLower(d, in[0], in[2]), hn::InterleaveLower(d, in[1], in[3]), lower);
  // Two rows of four columns each → four columns of eight rows.
  for (int i = 0; i < 2; ++i) {
    const IdctV16 rows01 = PackParts(lower[4 * i], lower[4 * i + 1]), rows23 = PackParts(lower[4 * i + 2], lower[4 * i + 3]);
    const IdctV16 even = hn::InterleaveLower(d, rows01, rows23), odd = hn::InterleaveUpper(d, rows01, rows23);
    t[i] = hn::InterleaveLower(d, even, odd);      // columns 0 and 1 of these four rows
    t[i + 2] = hn::InterleaveUpper(d, even, odd);  // 2 and 3
  }
  const hn::Repartition<uint64_t, IdctD16> d64;
  const auto join = [&](bool second, IdctV16 a, IdctV16 b) HWY_ATTR {
    const auto a64 = hn::BitCast(d64, a), b64 = hn::BitCast(d64, b);
    return hn::BitCast(d, second ? hn::InterleaveUpper(d64, a64, b64) : hn::InterleaveLower(d64, a64, b64));
  };
  const IdctV16 c0 = join(false, t[0], t[1]), c1 = join(true, t[0], t[1]);
  const IdctV16 c2 = join(false, t[2], t[3]), c3 = join(true, t[2], t[3]);
  TransformFour<18>(hn::InterleaveLower(d, c0, c2), hn::InterleaveLower(d, c1, c3), lower);
  TransformFour<18>(hn::InterleaveUpper(d, c0, c2), hn::InterleaveUpper(d, c1, c3), upper);
  IdctV16 v[8];
  for (int i = 0; i < 8; ++i) v[i] = PackParts(lower[i], upper[i]);
  StoreBlocks(v, blocks, stride);
}

// A block of a DC coefficient alone.
HWY_INLINE void FillBlock(const IdctBlock& block, const uint16_t* quant, size_t stride) {
  const auto scaled = static_cast<int16_t>(static_cast<uint32_t>(block.coefficients[0] * quant[0]) << 2);
  const uint64_t sample = static_cast<uint64_t>(std::clamp(((scaled + 16) >> 5) + 128, 0, 255));
  const uint64_t row = sample * 0x0101010101010101u;
  for (size_t y = 0; y < 8; ++y) std::memcpy(block.out + y * stride, &row, 8);
  block.coefficients[0] = 0;
}

enum IdctKind { kFirstRow, kQuarter, kAny, kIdctKinds };

// Which of them a block is.
HWY_INLINE IdctKind KindOf(const int16_t* coefficients) {
  const hn::CappedTag<int16_t, 16> d;
  constexpr size_t kLanes = hn::MaxLanes(hn::CappedTag<int16_t, 16>());
  auto beyond_quarter = hn::Zero(d), beyond_row = hn::Zero(d);
  for (size_t k = 0; k < 32; k += kLanes) {
    const auto v = hn::Load(d, coefficients + k);
    beyond_quarter = hn::Or(beyond_quarter, hn::And(v, hn::Load(d, kZigzagMasks.beyond_quarter + k)));
    beyond_row = hn::Or(beyond_row, hn::And(v, hn::Load(d, kZigzagMasks.beyond_row + k)));
  }
  auto last_half = hn::Load(d, coefficients + 32);
  for (size_t k = 32 + kLanes; k < 64; k += kLanes) last_half = hn::Or(last_half, hn::Load(d, coefficients + k));
  const auto none = [&](auto v) HWY_ATTR { return static_cast<int>(hn::AllTrue(d, hn::Eq(v, hn::Zero(d)))); };
  const int quarter = none(hn::Or(beyond_quarter, last_half)), first_row = none(hn::Or(beyond_row, last_half));
  // Without a branch, which would be guessed wrong.
  static constexpr uint8_t kKinds[4] = {kAny, kQuarter, kFirstRow, kFirstRow};
  return static_cast<IdctKind>(kKinds[quarter | first_row << 1]);
}

// Blocks whose first row alone is not zero: most are a DC coefficient alone. Returns how many are not, gathered in front.
HWY_INLINE int FillBlocks(IdctBlock* blocks, int n, const uint16_t* quant, size_t stride) {
  int left = 0;
  for (int i = 0; i < n; ++i) {
    const int16_t* const ac = blocks[i].coefficients;
    if ((ac[1] | ac[5] | ac[6] | ac[14] | ac[15] | ac[27] | ac[28]) == 0) {
      FillBlock(blocks[i], quant, stride);
    } else {
      blocks[left++] = blocks[i];
    }
  }
  return left;
}

// Blocks are sorted, and each kind has its own transform.
void Idct(const IdctBlock* blocks, int n, const uint16_t* quant, size_t stride) {
  IdctBlock sorted[kIdctKinds][kMaxIdctBlocks + kIdctBlocks];
  int count[kIdctKinds] = {};
  for (int i = 0; i < n; ++i) {
    const IdctKind kind = KindOf(blocks[i].coefficients);
    sorted[kind][count[kind]++] = blocks[i];
  }
  count[kFirstRow] = FillBlocks(sorted[kFirstRow], count[kFirstRow], quant, stride);
  // Places that are left in the last vector take blocks of the lesser kind.
  while (count[kAny] % kIdctBlocks != 0 && count[kQuarter] % kIdctBlocks != 0) {
    sorted[kAny][count[kAny]++] = sorted[kQuarter][--count[kQuarter]];
  }
  for (const IdctKind kind : {kFirstRow, kQuarter, kAny}) {
    IdctBlock* const list = sorted[kind];
    for (int i = count[kind]; i % kIdctBlocks != 0; ++i) list[i] = list[count[kind] - 1];
    for (int i = 0; i < count[kind]; i += kIdctBlocks) {
      if (kind == kFirstRow) IdctFirstRow(list + i, quant, stride);
      if (kind == kQuarter) IdctQuarter(list + i, quant, stride);
      if (kind == kAny) IdctAny(list + i, quant, stride);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace headrace
HWY_AFTER_NAMESPACE();

#endif  // include guard
