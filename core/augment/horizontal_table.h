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

inline constexpr int kWeightLowBits = 12;  // a weight is high << 12 | low

// Either kWindows: four neighbouring outputs (a block) take their inputs out of one window of 16
// bytes by a byte shuffle; or, where they lie further apart, kDots: a dot product per output.
struct HorizontalTable {
  enum class Kind { kWindows, kDots } kind = Kind::kWindows;
  int outputs = 0;
  bool overshoots = false;     // negative weights: results must be clamped
  size_t blocks = 0;           // kWindows: PlaneStride(outputs) / 4
  size_t pairs = 0;            // kWindows: pairs of taps
  size_t taps = 0;             // kDots: taps, padded to 8
  std::vector<int32_t> start;  // first input of each block | output
  AlignedVector<uint8_t>
      shuffle;  // [pair][block][16]: for each of four outputs two inputs as 16-bit numbers
  AlignedVector<int16_t> high, low;  // [pair][block][8] | [output][taps]
};

// `mirrored`: output i is the filter's output n − 1 − i. `source_begin`: the input that is column 0
// of the planes. Reuses the memory of `table`.
void MakeHorizontalTable(const AxisFilter& filter, bool mirrored, int source_begin,
                         HorizontalTable* table);

}  // namespace headrace
