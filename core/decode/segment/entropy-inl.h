// Un-stuffing and interleaved Huffman decoding, per SIMD target.
#if defined(HEADRACE_ENTROPY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADRACE_ENTROPY_INL_H_
#undef HEADRACE_ENTROPY_INL_H_
#else
#define HEADRACE_ENTROPY_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "core/decode/segment/entropy_context.h"
#include "core/decode/segment/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace headrace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

size_t Unstuff(const uint8_t* in, size_t size, uint8_t* out, size_t capacity, size_t* consumed) {
  const hn::CappedTag<uint8_t, 32> d;
  const size_t lanes = hn::Lanes(d);
  const auto ff = hn::Set(d, 0xFF);
  const uint8_t* const begin = in;
  const uint8_t* const end = in + size;
  uint8_t* const first = out;
  uint8_t* const limit = out + capacity;
  while (in < end && out < limit) {
    size_t run;
    if (in + lanes <= end) {
      const auto bytes = hn::LoadU(d, in);
      hn::StoreU(bytes, d, out);
      const intptr_t at = hn::FindFirstTrue(d, hn::Eq(bytes, ff));
      if (at < 0) {
        in += lanes;
        out += lanes;
        continue;
      }
      run = static_cast<size_t>(at);
    } else {
      const auto* found = static_cast<const uint8_t*>(std::memchr(in, 0xFF, static_cast<size_t>(end - in)));
      run = static_cast<size_t>((found ? found : end) - in);
      std::memcpy(out, in, run);
      if (!found) {
        in = end;
        out += run;
        break;
      }
    }
    in += run;
    out += run;
    if (in + 1 < end && in[1] != 0) break;  // a marker, or fill bytes before one
    *out++ = 0xFF;
    in += in + 1 < end ? 2 : 1;
  }
  *consumed = static_cast<size_t>(in - begin);
  return static_cast<size_t>(out - first);
}

#if HEADRACE_ENTROPY_ASM && HWY_TARGET <= HWY_AVX2
int DecodeTurns(EntropyContext* context) { return DecodeTurnsX86(context); }
#else
// One symbol of one stream. False: SlowSymbol must decode it; nothing has changed.
HWY_INLINE bool DecodeSymbol(EntropyContext* HWY_RESTRICT context, int16_t* HWY_RESTRICT coefficients, uint64_t& window,
                             uint64_t& bit, uint64_t& position) {
  const DecodeEntry& entry = context->lookup[context->table_of[position] + (window >> (64 - kLookupBits))];
  const uint64_t bits = entry.bits;
  if (HWY_UNLIKELY(bits == kSlowEntry)) return false;
  const uint64_t extra = window >> (entry.extra & 63) & ((uint64_t{1} << (entry.extra >> 8)) - 1);
  const uint64_t behind = position + entry.advance;
  coefficients[behind - 1] = static_cast<int16_t>(extra + static_cast<uint64_t>(int64_t{entry.value}));
  position = behind & static_cast<uint64_t>(int64_t{entry.mask});
  bit += bits;
  window <<= bits;
  return true;
}

int DecodeTurns(EntropyContext* HWY_RESTRICT context) {
  std::array<EntropyContext::Stream, kMaxStreams> streams = context->streams;
  for (;;) {
#pragma GCC unroll 4
    for (int i = 0; i < kMaxStreams; ++i) {
      EntropyContext::Stream& stream = streams[static_cast<size_t>(i)];
      uint64_t window = WindowAt(context->bytes[0], stream.bit);
      bool fast = true;
      for (int k = 0; k < kSymbolsPerTurn && fast; ++k) {
        fast = DecodeSymbol(context, context->coefficients[i], window, stream.bit, stream.position);
      }
      if (HWY_UNLIKELY(!fast || stream.position >= stream.end)) {
        context->streams = streams;
        return fast ? i : i | kSlowTurn;
      }
    }
  }
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace headrace
HWY_AFTER_NAMESPACE();

#endif  // include guard
