// Resizes a picture exactly as Pillow 13's Image.resize does for 8-bit RGB, row by row, and only
// the window that is asked for (docs/pixels.md, "Resize").
#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "core/augment/recipe.h"
#include "core/decode/image.h"

namespace headrace {

// What to resize. Sizes are ≥ 1 px; at least one of them changes.
struct ResizeJob {
  int in_height = 0, in_width = 0;    // of the whole input
  int out_height = 0, out_width = 0;  // of the whole output
  Interpolation interpolation = Interpolation::kBilinear;
  Rect window;            // of the output: what is computed; not empty, inside it
  bool mirrored = false;  // rows are handed out from right to left
};

// A row of pixels that is still to be blended of spread rows (core/augment/resize_kernels.h).
struct BlendedRow {
  const int32_t* const* rows;  // three planes each
  const int32_t* weights;
  int taps;
  int32_t bias;
  size_t plane_lanes;  // between the planes
  bool overshoots;     // negative weights: results must be clamped
};

// Whether columns are filtered before rows. It decides the last bit, because the first pass rounds to bytes.
bool VerticalFirst(const ResizeJob& job);

// The part of the input that the window needs.
Rect ResizeSource(const ResizeJob& job);

// One per decoding thread; not thread-safe. Keeps its memory between calls.
class Resizer {
 public:
  // Where rows come from: row `row` of the input, its planes beginning at column
  // ResizeSource(job).left; valid until the next call. Rows are asked for in ascending order, some
  // perhaps left out.
  using RowSource = absl::FunctionRef<PlanarRow(int row)>;
  // Row `row` (0 … window.height − 1) of the window: red, green and blue planes of window.width
  // bytes, PlaneStride(window.width) apart; valid during the call.
  using RowSink = absl::FunctionRef<void(int row, const uint8_t* planes)>;

  // Takes a row of the window before it is blended, if it likes (true).
  using BlendedSink = absl::FunctionRef<bool(int row, const BlendedRow& blended)>;

  Resizer();
  ~Resizer();

  void Run(const ResizeJob& job, RowSource source, RowSink sink);
  // Where the vertical pass is the last step, its rows are offered to `blended` first.
  void Run(const ResizeJob& job, RowSource source, RowSink sink, BlendedSink blended);
  // `pixels` holds at least the part `held` of the input, which contains ResizeSource(job).
  void Run(const ResizeJob& job, const RgbImage& pixels, const Rect& held, RowSink sink);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace
