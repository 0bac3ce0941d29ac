// A filter along x in the form that the horizontal pass reads (core/augment/resize_kernels.h).
// Internal to core/augment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/augment/aligned.h"
#include "core/augment/filter.h"
#include "core/decode/image.h"

namespace headrace {

// Planes are padded to the longest vector of 32-bit lanes. Kernels write whole planes, and read up
// to kRowPadding bytes behind them.
inline size_t PlaneStride(int width) { return (static_cast<size_t>(width) + 15) & ~size_t{15}; }

// A weight is high << 12 | low.
inline constexpr int kWeightLowBits = 12;

// Where the kernels have `dots_of_bytes` (vector_outputs is 16) and 16 outputs in a row have their inputs within 64 bytes, kDigits:
// one byte shuffle of those gives each output four of its inputs (a quad), and a weight is three
// signed bytes, high << 16 + middle << 8 + low. Else either kWindows: neighbouring outputs take their inputs out of one window of 16 bytes by a byte
// shuffle; a window serves `shared` outputs, four (a block) or as many as a vector has. Or, where
// outputs lie further apart, kDots: a dot product each, one in each part of four lanes: part p of a
// vector makes its outputs 4·p … 4·p + 3 one after the other, so that each group of
// `vector_outputs` / 4 outputs is one step.
struct HorizontalTable {
  enum class Kind { kWindows, kDots, kDigits } kind = Kind::kWindows;
  int outputs = 0;
  size_t vector_outputs = 4;   // that the kernels make at once: lanes of a vector
  bool overshoots = false;     // negative weights: results must be clamped
  size_t shared = 4;           // kWindows: outputs of one window
  size_t blocks = 0;           // kWindows: PlaneStride(outputs) / 4
  size_t pairs = 0;            // kWindows: pairs of taps
  size_t taps = 0;             // kDots: taps, padded to 8
  size_t quads = 0;            // kDigits: quads of taps
  std::vector<int32_t> start;  // first input of each block | [group][part] | of each 16 outputs
  AlignedVector<uint8_t>
      shuffle;  // [pair][block][16]: for each of four outputs two inputs as 16-bit numbers | [16 outputs][quad][64]
  AlignedVector<int8_t> digits;      // kDigits: [16 outputs][quad][high, middle, low][64]
  AlignedVector<int16_t> high, low;  // [pair][block][8] | [group][8 taps][part][8]
};

// `mirrored`: output i is the filter's output n − 1 − i. `source_begin`: the input that is column 0
// of the planes. Reuses the memory of `table`.
void MakeHorizontalTable(const AxisFilter& filter, bool mirrored, int source_begin,
                         size_t vector_outputs, bool dots_of_bytes, HorizontalTable* table);

}  // namespace headrace
