// The inner loops of segment decoding; the SIMD target is chosen at run time (Highway). Every target gives the same bytes.
// Internal to core/decode/segment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/decode/segment/entropy_context.h"

namespace headrace {

inline constexpr int kSlowTurn = 8;

// Coefficients in zigzag order, 64-byte aligned, and where their samples go.
struct IdctBlock {
  int16_t* coefficients;
  uint8_t* out;
};
inline constexpr int kMaxIdctBlocks = kMaxSegmentBlocks;

struct SegmentKernels {
  const char* target;

  // Copies entropy-coded bytes without the zeros stuffed behind 0xFF, until a marker, the input's end, or `capacity`
  // bytes. Returns the bytes written; *consumed: input bytes passed (a marker is not). Writes up to 64 bytes more.
  size_t (*unstuff)(const uint8_t* in, size_t size, uint8_t* out, size_t capacity, size_t* consumed);

  // Decodes kSymbolsPerTurn symbols of each stream in turn until one of them has come to its end, or to a symbol that
  // SlowSymbol must decode: its number | kSlowTurn. The chain from one symbol to the next takes 15 cycles alone; other
  // streams fill them.
  int (*decode_turns)(EntropyContext* context);

  // libjpeg-turbo's jsimd_idct_islow on n blocks (1 … kMaxIdctBlocks): 8 × 8 samples each at its `out`. Clears them.
  // `quant`: in zigzag order too, 64-byte aligned.
  void (*idct)(const IdctBlock* blocks, int n, const uint16_t* quant, size_t stride);

  // Fancy upsampling of one row. in[-1] and in[n] hold copies of the edge samples at an image's edge. Writes 2·n samples
  // (h2…) or n, rounded up to whole vectors; reads as far. `far` is the nearer of the two other rows.
  void (*upsample_h2v1)(const uint8_t* in, int n, uint8_t* out);
  void (*upsample_h2v2)(const uint8_t* near, const uint8_t* far, int n, uint8_t* out);
  void (*upsample_h1v2)(const uint8_t* near, const uint8_t* far, int n, int bias, uint8_t* out);

  // libjpeg's integer colour conversion of n samples, in place allowed. Works on whole vectors.
  void (*ycc_to_rgb)(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, int n, uint8_t* r, uint8_t* g, uint8_t* b);
  // Three planes to interleaved RGB; exactly 3·n bytes are written.
  void (*interleave)(const uint8_t* r, const uint8_t* g, const uint8_t* b, int n, uint8_t* rgb);
};

// Bytes behind (and before) a row that kernels may read or write.
inline constexpr size_t kRowMargin = 128;

const SegmentKernels& ActiveSegmentKernels();

}  // namespace headrace
