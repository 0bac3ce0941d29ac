// The last step of every sample: from rows of byte planes to the elements of the output
// (docs/pixels.md, "Normalise" and "Cast"). Internal to core/augment.
//
// float32 = fma(pixel, a, b), rounded once, with a = 1 / (255·std) and b = −mean / std computed in
// double and rounded to float; without Normalize pixel / 255, correctly rounded. float16 and
// bfloat16 are that float32 rounded to nearest even.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/augment/recipe.h"
#include "core/augment/resize.h"
#include "core/decode/image.h"

namespace headrace {

// What to do with a pixel. Made once per recipe.
struct PackPlan {
  DType dtype = DType::kUInt8;
  MemoryFormat memory_format = MemoryFormat::kContiguous;
  bool normalized = false;
  std::array<float, 3> a = {}, b = {};
  // The result for every byte, per channel: for targets without a fused multiply-add, and for the
  // ends of rows.
  std::array<std::array<float, 256>, 3> float32 = {};
  std::array<std::array<uint16_t, 256>, 3> float16 = {};  // bits, of float16 or bfloat16
};

PackPlan MakePackPlan(const Recipe& recipe);

// `plan` was made from an equal dtype, memory_format and normalize.
bool IsPlanFor(const PackPlan& plan, const Recipe& recipe);

// Bits of `value` rounded to nearest even. Overflow gives infinity.
uint16_t Float16Bits(float value);
uint16_t BFloat16Bits(float value);

// Writes `pixels` as row `row` of an output of height × width. `out` is the whole sample, aligned
// to its elements; exactly the row's elements are written.
void PackRow(const PackPlan& plan, const PlanarRow& pixels, int row, int height, int width,
             void* out);

// Blends and packs in one. False where that is not better than two steps: then nothing is written.
bool PackBlendedRow(const PackPlan& plan, const BlendedRow& blended, int row, int height, int width,
                    void* out);

// Where a row goes.
struct OutputRow {
  uint8_t* bytes;
  size_t plane_bytes;  // between the output's planes; 0: channels_last
  bool streamed;       // past the caches
};
OutputRow PlaceOfRow(const PackPlan& plan, int row, int height, int width, void* out);

// To be called behind a sample's last row: PackRow may write past the caches, and such stores would
// otherwise become visible after a later store that says "ready".
void FinishPacking();

}  // namespace headrace
