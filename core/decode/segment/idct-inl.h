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
#include <cstdint>
#include <cstring>

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

// Row `row` of kIdctBlocks blocks, dequantised.
HWY_INLINE IdctV16 Dequantized(const IdctBlock* blocks, const uint16_t* quant, int row) {
  const IdctD16 d;
  return hn::Mul(LoadRows(d, blocks, row), hn::LoadDup128(d, reinterpret_cast<const int16_t*>(quant) + 8 * row));
}

// Zeros in the first `rows` rows of the blocks.
HWY_INLINE void ClearBlocks(const IdctBlock* blocks, size_t rows) {
  const hn::CappedTag<int16_t, 32> d;
  for (int b = 0; b < kIdctBlocks; ++b) {
    for (size_t k = 0; k < 8 * rows; k += hn::Lanes(d)) hn::Store(hn::Zero(d), d, blocks[b].coefficients + k);
  }
}

// Blocks without restriction.
HWY_INLINE void IdctAny(const IdctBlock* blocks, const uint16_t* quant, size_t stride) {
  IdctV16 v[8];
  for (int i = 0; i < 8; ++i) v[i] = Dequantized(blocks, quant, i);
  ClearBlocks(blocks, 8);
  Pass<11>(v);
  TransposeBlocks(v);
  Pass<18>(v);
  StoreBlocks(v, blocks, stride);
}

// Blocks whose first row alone is not zero. libjpeg-turbo's shortcut wraps where the full first pass would saturate.
HWY_INLINE void IdctFirstRow(const IdctBlock* blocks, const uint16_t* quant, size_t stride) {
  IdctV16 v[8];
  v[0] = hn::ShiftLeft<2>(Dequantized(blocks, quant, 0));
  ClearBlocks(blocks, 4);
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
  for (int i = 0; i < 4; ++i) in[i] = Dequantized(blocks, quant, i);
  ClearBlocks(blocks, 4);
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
  const hn::CappedTag<int16_t, 16> d;  // a row or two
  constexpr size_t kLanes = hn::MaxLanes(hn::CappedTag<int16_t, 16>());
  alignas(32) static constexpr int16_t kNotFirstRow[16] = {0, 0, 0, 0, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1};
  alignas(32) static constexpr int16_t kUpperColumns[16] = {0, 0, 0, 0, -1, -1, -1, -1, 0, 0, 0, 0, -1, -1, -1, -1};
  const auto first = hn::Load(d, coefficients);
  auto upper_rows = hn::Load(d, coefficients + kLanes), lower_rows = hn::Load(d, coefficients + 32);
  for (size_t i = 2 * kLanes; i < 32; i += kLanes) upper_rows = hn::Or(upper_rows, hn::Load(d, coefficients + i));
  for (size_t i = 32 + kLanes; i < 64; i += kLanes) lower_rows = hn::Or(lower_rows, hn::Load(d, coefficients + i));
  const auto none = [&](auto v) HWY_ATTR { return static_cast<int>(hn::AllTrue(d, hn::Eq(v, hn::Zero(d)))); };
  const int quarter = none(hn::Or(lower_rows, hn::And(hn::Or(first, upper_rows), hn::Load(d, kUpperColumns))));
  const int first_row = none(hn::Or(hn::Or(upper_rows, lower_rows), hn::And(first, hn::Load(d, kNotFirstRow))));
  // Without a branch, which would be guessed wrong.
  static constexpr uint8_t kKinds[4] = {kAny, kQuarter, kFirstRow, kFirstRow};
  return static_cast<IdctKind>(kKinds[quarter | first_row << 1]);
}

// Blocks whose first row alone is not zero: most are a DC coefficient alone. Returns how many are not, gathered in front.
HWY_INLINE int FillBlocks(IdctBlock* blocks, int n, const uint16_t* quant, size_t stride) {
  int left = 0;
  for (int i = 0; i < n; ++i) {
    uint64_t row[2];
    std::memcpy(row, blocks[i].coefficients, sizeof row);
    if ((row[0] >> 16 | row[1]) == 0) {
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
