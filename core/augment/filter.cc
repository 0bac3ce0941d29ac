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

// Those whose sines and cosines are the C library's: for the CPU only.
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
struct Lanczos {
  static constexpr double kSupport = 3.0;
  static double At(double x) { return x >= -3.0 && x < 3.0 ? Sinc(x) * Sinc(x / 3.0) : 0.0; }
};

template <typename Kernel>
void Compute(int in, int out, Span window, AxisFilter* filter) {
  const Placement placement(Kernel::kSupport, in, out);
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
    const Weights<Kernel> at(placement, window.begin + static_cast<int>(i));
    const int count = filter->count[i];
    double sum = 0.0;
    for (int t = 0; t < count; ++t) sum += weights[t] = at(t);
    int32_t* out_weights = filter->weights.data() + i * taps;
    for (int t = 0; t < count; ++t) out_weights[t] = RoundWeight(weights[t], sum);
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
