// Weights of the antialiased resize, one output at a time: for the CPU and the GPU, which get the same doubles as long as nothing is
// contracted to a fused multiply-add. Internal to core/augment. Source: as of filter.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/base/host_device.h"

namespace headrace {

inline constexpr int kWeightBits = 22;

// A range of indices along one axis.
struct Span {
  int begin = 0, end = 0;
  HEADRACE_GPU int size() const { return end - begin; }
  friend bool operator==(const Span& a, const Span& b) { return a.begin == b.begin && a.end == b.end; }
};

// The kernels, each with half its width at scale 1. The order of operations is part of the definition.
struct Box {
  static constexpr double kSupport = 0.5;
  HEADRACE_GPU static double At(double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }
};
struct Bilinear {
  static constexpr double kSupport = 1.0;
  HEADRACE_GPU static double At(double x) {
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
  }
};
struct Bicubic {  // Keys' kernel with a = −1/2
  static constexpr double kSupport = 2.0;
  static constexpr double kA = -0.5;
  HEADRACE_GPU static double At(double x) {
    x = fabs(x);
    if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1.0;
    if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * kA;
    return 0.0;
  }
};

// Where the outputs' inputs lie.
struct Placement {
  HEADRACE_GPU Placement(double kernel_support, int in_size, int out_size)
      : in(in_size),
        scale(static_cast<double>(in_size) / out_size),
        filter_scale(Max(scale, 1.0)),
        support(kernel_support * filter_scale) {}

  HEADRACE_GPU double Center(int i) const { return (i + 0.5) * scale; }
  HEADRACE_GPU Span Source(int i) const {
    return {Max(static_cast<int>(Center(i) - support + 0.5), 0), Min(static_cast<int>(Center(i) + support + 0.5), in)};
  }
  // No output has more inputs.
  int MostTaps() const { return 2 * static_cast<int>(std::ceil(support)) + 1; }

  int in;
  double scale, filter_scale, support;
};

// The weights of one output, by its inputs, before they are normalised.
template <typename Kernel>
struct Weights {
  HEADRACE_GPU Weights(const Placement& placement, int i)
      : begin(placement.Source(i).begin), center(placement.Center(i)), inverse_scale(1.0 / placement.filter_scale) {}
  HEADRACE_GPU double operator()(int t) const { return Kernel::At((t + begin - center + 0.5) * inverse_scale); }

  int begin;
  double center, inverse_scale;
};

// One of them normalised by their sum.
HEADRACE_GPU inline int32_t RoundWeight(double weight, double sum) {
  if (sum != 0.0) weight /= sum;
  const double scaled = weight * (1 << kWeightBits);
  return static_cast<int32_t>(weight < 0 ? scaled - 0.5 : scaled + 0.5);
}

}  // namespace headrace
