// Blocks of coefficients into vectors and blocks of samples out of them, per SIMD target.
#if defined(HEADRACE_IDCT_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADRACE_IDCT_BLOCKS_INL_H_
#undef HEADRACE_IDCT_BLOCKS_INL_H_
#else
#define HEADRACE_IDCT_BLOCKS_INL_H_
#endif

#include <hwy/highway.h>

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
// The part of row kRow that lies in the eighth kEighth of the zigzag order, as a byte shuffle.
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
      const auto from = hn::BitCast(d8, z[decltype(eighth)::value]);
      row = hn::Or(row, hn::TableLookupBytesOr0(from, hn::Load(d8, Shuffle::kBytes.bytes)));
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

enum IdctKind { kFirstRow, kQuarter, kAny, kIdctKinds };

// 1 where the first row alone, or the first four rows and columns alone, may be other than zero.
struct IdctShape {
  int first_row, quarter;
};
HWY_INLINE IdctShape ShapeOf(const int16_t* coefficients) {
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
  return {none(hn::Or(beyond_row, last_half)), none(hn::Or(beyond_quarter, last_half))};
}

}  // namespace HWY_NAMESPACE
}  // namespace headrace
HWY_AFTER_NAMESPACE();

#endif  // include guard
