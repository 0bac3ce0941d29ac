// Weights of the antialiased resize along one axis, equal to Pillow's: computed in double,
// normalised, rounded to 22 bits (precompute_coeffs and normalize_coeffs_8bpc of Pillow's
// src/libImaging/Resample.c; docs/pixels.md).
#pragma once

#include <cstdint>
#include <vector>

#include "core/augment/filter_math.h"
#include "core/augment/recipe.h"

namespace headrace {

// Output i of the window is Σ weights[i · taps + t] · in[start[i] + t], t < taps; weights behind an
// output's last are 0.
struct AxisFilter {
  int taps = 0;  // of the output that has most
  std::vector<int32_t> start;
  std::vector<int32_t> count;  // weights of each output, ≥ 1
  std::vector<int32_t> weights;
  std::vector<double> scratch;  // memory of the computation, kept
};

// The filter from `in` to `out` samples (≥ 1) for the outputs of `window`. `interpolation` is not
// kNearest. Reuses the memory of `filter`. O(taps) per output.
void ComputeFilter(Interpolation interpolation, int in, int out, Span window, AxisFilter* filter);

// The inputs that the outputs of `window` (not empty) need; also for kNearest.
Span FilterSource(Interpolation interpolation, int in, int out, Span window);

// kNearest: the input of each output of `window`. Pillow adds up the step in double
// (ImagingScaleAffine of src/libImaging/Geometry.c), so this costs O(window.end).
void ComputeNearest(int in, int out, Span window, std::vector<int32_t>* source);

}  // namespace headrace
