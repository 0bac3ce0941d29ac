#include "core/augment/filter.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace headrace {
namespace {

double Sinc(double x) {
  if (x == 0.0) return 1.0;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

// The kernels, each with half its width at scale 1. The order of operations is part of the
// definition.
struct Box {
  static constexpr double kSupport = 0.5;
  static double At(double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }
};
struct Bilinear {
  static constexpr double kSupport = 1.0;
  static double At(double x) {
    x = std::abs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
  }
};
struct Hamming {
  static constexpr double kSupport = 1.0;
  static double At(double x) {
    x = std::abs(x);
    if (x == 0.0) return 1.0;
    if (x >= 1.0) return 0.0;
    x *= std::numbers::pi;
    return std::sin(x) / x *
           (double{0.54f} + double{0.46f} * std::cos(x));  // Pillow's constants are floats
  }
};
struct Bicubic {  // Keys' kernel with a = −1/2
  static constexpr double kSupport = 2.0;
  static constexpr double kA = -0.5;
  static double At(double x) {
    x = std::abs(x);
    if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1.0;
    if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * kA;
    return 0.0;
  }
};
struct Lanczos {
  static constexpr double kSupport = 3.0;
  static double At(double x) { return x >= -3.0 && x < 3.0 ? Sinc(x) * Sinc(x / 3.0) : 0.0; }
};

// Where the outputs' inputs lie.
struct Placement {
  Placement(double kernel_support, int in_size, int out_size)
      : in(in_size),
        scale(static_cast<double>(in_size) / out_size),
        filter_scale(std::max(scale, 1.0)),
        support(kernel_support * filter_scale) {}

  double Center(int i) const { return (i + 0.5) * scale; }
  Span Source(int i) const {
    return {std::max(static_cast<int>(Center(i) - support + 0.5), 0),
            std::min(static_cast<int>(Center(i) + support + 0.5), in)};
  }

  int in;
  double scale, filter_scale, support;
};

template <typename Kernel>
void Compute(int in, int out, Span window, AxisFilter* filter) {
  const Placement placement(Kernel::kSupport, in, out);
  const double inverse_scale = 1.0 / placement.filter_scale;
  const size_t n = static_cast<size_t>(window.size());
  filter->start.resize(n);
  filter->count.resize(n);
  filter->taps = 0;
  for (size_t i = 0; i < n; ++i) {
    const Span source = placement.Source(window.begin + static_cast<int>(i));
    filter->start[i] = source.begin;
    filter->count[i] = source.size();
    filter->taps = std::max(filter->taps, source.size());
  }
  const size_t taps = static_cast<size_t>(filter->taps);
  filter->weights.assign(n * taps, 0);
  filter->scratch.resize(taps);
  double* weights = filter->scratch.data();
  for (size_t i = 0; i < n; ++i) {
    const double center = placement.Center(window.begin + static_cast<int>(i));
    const int start = filter->start[i];
    const int count = filter->count[i];
    double sum = 0.0;
    for (int t = 0; t < count; ++t) {
      weights[t] = Kernel::At((t + start - center + 0.5) * inverse_scale);
      sum += weights[t];
    }
    int32_t* out_weights = filter->weights.data() + i * taps;
    for (int t = 0; t < count; ++t) {
      if (sum != 0.0) weights[t] /= sum;
      const double scaled = weights[t] * (1 << kWeightBits);
      out_weights[t] = static_cast<int32_t>(weights[t] < 0 ? scaled - 0.5 : scaled + 0.5);
    }
  }
}

double Support(Interpolation interpolation) {
  switch (interpolation) {
    case Interpolation::kBox:
      return Box::kSupport;
    case Interpolation::kBilinear:
      return Bilinear::kSupport;
    case Interpolation::kHamming:
      return Hamming::kSupport;
    case Interpolation::kBicubic:
      return Bicubic::kSupport;
    case Interpolation::kLanczos:
      return Lanczos::kSupport;
    case Interpolation::kNearest:
      break;
  }
  return 0.0;
}

}  // namespace

void ComputeFilter(Interpolation interpolation, int in, int out, Span window, AxisFilter* filter) {
  switch (interpolation) {
    case Interpolation::kBox:
      return Compute<Box>(in, out, window, filter);
    case Interpolation::kBilinear:
      return Compute<Bilinear>(in, out, window, filter);
    case Interpolation::kHamming:
      return Compute<Hamming>(in, out, window, filter);
    case Interpolation::kBicubic:
      return Compute<Bicubic>(in, out, window, filter);
    case Interpolation::kLanczos:
      return Compute<Lanczos>(in, out, window, filter);
    case Interpolation::kNearest:
      break;  // has no weights: ComputeNearest
  }
}

namespace {

// Calls `visit(output, input)` for every output of the window.
template <typename Visit>
void VisitNearest(int in, int out, Span window, Visit visit) {
  const double step = static_cast<double>(in) / out;
  double at = step * 0.5;
  for (int i = 0; i < window.end; ++i) {
    // The sum drifts by rounding, never by as much as the half step that is left at the end.
    if (i >= window.begin) visit(i, std::min(static_cast<int>(at), in - 1));
    at += step;
  }
}

}  // namespace

Span FilterSource(Interpolation interpolation, int in, int out, Span window) {
  if (interpolation == Interpolation::kNearest) {
    Span source = {in, 0};
    VisitNearest(in, out, window, [&](int, int from) {
      source.begin = std::min(source.begin, from);
      source.end = from + 1;
    });
    return source;
  }
  const Placement placement(Support(interpolation), in, out);
  return {placement.Source(window.begin).begin, placement.Source(window.end - 1).end};
}

void ComputeNearest(int in, int out, Span window, std::vector<int32_t>* source) {
  source->clear();
  VisitNearest(in, out, window, [&](int, int from) { source->push_back(from); });
}

}  // namespace headrace
