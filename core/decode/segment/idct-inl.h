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

#include "core/base/vnni.h"
#include "core/decode/segment/idct_blocks-inl.h"
#include "core/decode/segment/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace headrace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 13-bit fixed point.
constexpr int kF0_298 = 2446, kF0_390 = 3196, kF0_541 = 4433, kF0_765 = 6270, kF0_899 = 7373, kF1_175 = 9633,
              kF1_501 = 12299, kF1_847 = 15137, kF1_961 = 16069, kF2_053 = 16819, kF2_562 = 20995, kF3_072 = 25172;

HWY_INLINE IdctV16 PairWeights(int a, int b) {
  const auto weights = hn::Set(IdctD32(), static_cast<int32_t>((a & 0xFFFF) | static_cast<uint32_t>(b) << 16));
  return hn::BitCast(IdctD16(), weights);
}

// Pairs (even lane, odd lane) × (a, b), summed to 32 bits.
HWY_INLINE IdctV32 MultiplyPairs(IdctV16 pairs, int a, int b) {
  const IdctD32 d32;
  auto odd = hn::Zero(d32);
  const auto even = hn::ReorderWidenMulAccumulate(d32, pairs, PairWeights(a, b), hn::Zero(d32), odd);
  return hn::RearrangeToOddPlusEven(even, odd);
}

// sum + pairs × (a, b).
HWY_INLINE IdctV32 AddPairs(IdctV32 sum, IdctV16 pairs, int a, int b) {
#if HEADRACE_HAS_VNNI
  return IdctV32{AddDotOfWords(sum.raw, pairs.raw, PairWeights(a, b).raw)};
#else
  return hn::Add(sum, MultiplyPairs(pairs, a, b));
#endif
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
  sum04 = hn::Add(sum04, round);
  difference04 = hn::Add(difference04, round);
#if HEADRACE_HAS_VNNI
  const IdctV32 t10 = AddPairs(sum04, in26, kF0_541 + kF0_765, kF0_541);
  const IdctV32 t13 = AddPairs(sum04, in26, -kF0_541 - kF0_765, -kF0_541);
  const IdctV32 t11 = AddPairs(difference04, in26, kF0_541, kF0_541 - kF1_847);
  const IdctV32 t12 = AddPairs(difference04, in26, -kF0_541, kF1_847 - kF0_541);
#else
  const IdctV32 even3 = MultiplyPairs(in26, kF0_541 + kF0_765, kF0_541);
  const IdctV32 even2 = MultiplyPairs(in26, kF0_541, kF0_541 - kF1_847);
  const IdctV32 t10 = hn::Add(sum04, even3), t13 = hn::Sub(sum04, even3);
  const IdctV32 t11 = hn::Add(difference04, even2), t12 = hn::Sub(difference04, even2);
#endif
  const IdctV32 z3 = MultiplyPairs(z34, kF1_175 - kF1_961, kF1_175);
  const IdctV32 z4 = MultiplyPairs(z34, kF1_175, kF1_175 - kF0_390);
  const IdctV32 odd0 = AddPairs(z3, in71, kF0_298 - kF0_899, -kF0_899);
  const IdctV32 odd3 = AddPairs(z4, in71, -kF0_899, kF1_501 - kF0_899);
  const IdctV32 odd1 = AddPairs(z4, in53, kF2_053 - kF2_562, -kF2_562);
  const IdctV32 odd2 = AddPairs(z3, in53, -kF2_562, kF3_072 - kF2_562);
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
  const IdctV32 t10 = AddPairs(round, in02, 1 << 13, kF0_541 + kF0_765);
  const IdctV32 t13 = AddPairs(round, in02, 1 << 13, -kF0_541 - kF0_765);
  const IdctV32 t11 = AddPairs(round, in02, 1 << 13, kF0_541);
  const IdctV32 t12 = AddPairs(round, in02, 1 << 13, -kF0_541);
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
  // Into all three lists, of which one grows: without a branch, which would be guessed wrong, and with counts in registers.
  int first_row = 0, quarter = 0;
  for (int i = 0; i < n; ++i) {
    const IdctBlock block = blocks[i];
    const IdctShape shape = ShapeOf(block.coefficients);
    sorted[kFirstRow][first_row] = sorted[kQuarter][quarter] = sorted[kAny][i - first_row - quarter] = block;
    first_row += shape.first_row;
    quarter += shape.quarter & ~shape.first_row;
  }
  int count[kIdctKinds] = {FillBlocks(sorted[kFirstRow], first_row, quant, stride), quarter, n - first_row - quarter};
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
