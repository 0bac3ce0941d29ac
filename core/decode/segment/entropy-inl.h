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

// `number` bits of `window` from bit `lowest` up.
HWY_INLINE uint64_t ExtractBits(uint64_t window, uint32_t control) {
#if defined(__x86_64__) && HWY_TARGET <= HWY_AVX2
  uint64_t result;
  asm("bextr %2, %1, %0" : "=r"(result) : "r"(window), "r"(uint64_t{control}) : "cc");
  return result;
#else
  return window >> (control & 255) & ((uint64_t{1} << (control >> 8)) - 1);
#endif
}

HWY_INLINE uint64_t WindowAt(const uint8_t* bytes, uint64_t bit) {
  uint64_t word;
  std::memcpy(&word, bytes + (bit >> 3), 8);
  return __builtin_bswap64(word) << (bit & 7);
}

// One symbol of one stream. After a look-up at most 25 bits of the window are gone, so that two symbols fit into the 57
// valid ones; a symbol of the slow path reloads it.
HWY_INLINE void DecodeSymbol(EntropyContext* HWY_RESTRICT context, int16_t* HWY_RESTRICT coefficients, uint64_t& window,
                             uint64_t& bit, uint64_t& position) {
  const uint32_t table = context->table_of[position];
  const DecodeEntry* entry = &context->lookup[table + (window >> (64 - kLookupBits))];
  const uint64_t advance = entry->advance;
  if (HWY_UNLIKELY(advance == 0)) {
    const DecodeEntry slow = SlowSymbol(context, table, WindowAt(context->bytes[0], bit));
    const uint64_t behind = position + slow.advance;
    coefficients[context->place[behind - 1]] = slow.value;
    position = behind & static_cast<uint64_t>(int64_t{slow.mask});
    bit += slow.bits;
    window = WindowAt(context->bytes[0], bit);
    return;
  }
  const uint64_t extra = ExtractBits(window, entry->extra);
  const uint64_t behind = position + advance;
  coefficients[context->place[behind - 1]] = static_cast<int16_t>(extra + static_cast<uint64_t>(int64_t{entry->value}));
  position = behind & static_cast<uint64_t>(int64_t{entry->mask});
  bit += entry->bits;
  window <<= entry->bits;
}

// N streams, two symbols of each in turn: the chain from one symbol to the next takes 15 cycles alone, 6 when four
// streams share the core. When a stream has no run left, the others go on without it.
template <int N>
HWY_NOINLINE void DecodeInterleaved(EntropyContext* HWY_RESTRICT context, StreamSource* source, Stream* streams) {
  uint64_t bit[N], position[N];
  for (int i = 0; i < N; ++i) {
    bit[i] = streams[i].bit;
    position[i] = streams[i].position;
  }
  for (;;) {
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      if (HWY_LIKELY(position[i] < streams[i].end)) continue;
      streams[i].bit = bit[i];
      streams[i].position = position[i];
      source->Finish(streams[i]);
      if (source->Start(&streams[i])) {
        bit[i] = streams[i].bit;
        position[i] = streams[i].position;
        continue;
      }
      for (int k = 0; k < N; ++k) {
        if (k == i) continue;
        streams[k].bit = bit[k];
        streams[k].position = position[k];
      }
      streams[i] = streams[N - 1];
      if constexpr (N > 1) DecodeInterleaved<N - 1>(context, source, streams);
      return;
    }
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      int16_t* coefficients = context->coefficients[N == kMaxStreams ? i : streams[i].slot];
      uint64_t window = WindowAt(context->bytes[0], bit[i]);
      DecodeSymbol(context, coefficients, window, bit[i], position[i]);
      DecodeSymbol(context, coefficients, window, bit[i], position[i]);
    }
  }
}

void DecodeStreams(EntropyContext* context, StreamSource* source, int count) {
  Stream streams[kMaxStreams];
  int started = 0;
  for (int i = 0; i < count; ++i) {
    streams[started].slot = i;
    if (source->Start(&streams[started])) ++started;
  }
  switch (started) {
    case 1: return DecodeInterleaved<1>(context, source, streams);
    case 2: return DecodeInterleaved<2>(context, source, streams);
    case 3: return DecodeInterleaved<3>(context, source, streams);
    case 4: return DecodeInterleaved<4>(context, source, streams);
    default: return;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace headrace
HWY_AFTER_NAMESPACE();

#endif  // include guard
