// The pixel stages behind the decoder: resize of a training crop to 224 × 224, flip, normalise,
// cast. Before anything is timed, every SIMD target must give the same bytes as the least one.
// Figures belong to one core.
#include <benchmark/benchmark.h>
#include <hwy/targets.h>

#include <cstdio>
#include <random>
#include <utility>
#include <vector>

#include "core/augment/pack.h"
#include "core/augment/resize.h"
#include "core/augment/resize_kernels.h"

namespace headrace {
namespace {

constexpr int kSize = 224;

RgbImage Noise(int height, int width) {
  RgbImage image;
  image.Resize(width, height);
  std::mt19937 random(1);
  for (uint8_t& byte : image.pixels) byte = static_cast<uint8_t>(random());
  return image;
}

ResizeJob Job(int height, int width, Interpolation interpolation) {
  return {height, width, kSize, kSize, interpolation, {0, 0, kSize, kSize}, true};
}

Recipe MakeRecipe(DType dtype) {
  Recipe recipe;
  recipe.dtype = dtype;
  if (dtype != DType::kUInt8) recipe.normalize = Normalize{};
  return recipe;
}

// Crops as RandomResizedCrop draws them: a few sizes in turn, so that no table can be reused.
std::vector<RgbImage> Crops(int height, int width) {
  std::vector<RgbImage> crops;
  for (int i = -4; i <= 4; ++i) crops.push_back(Noise(height + 7 * i, width - 9 * i));
  return crops;
}

void TrainTransform(benchmark::State& state, Interpolation interpolation, DType dtype) {
  const std::vector<RgbImage> crops =
      Crops(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)));
  const PackPlan plan = MakePackPlan(MakeRecipe(dtype));
  std::vector<float> out(3 * kSize * kSize);
  Resizer resizer;
  size_t i = 0;
  for (auto _ : state) {
    const RgbImage& crop = crops[i++ % crops.size()];
    resizer.Run(Job(crop.height, crop.width, interpolation), crop, {0, 0, crop.height, crop.width},
                [&](int row, const uint8_t* planes) {
                  PackRow(plan, {planes, PlaneStride(kSize)}, row, kSize, kSize, out.data());
                });
    benchmark::ClobberMemory();
  }
  state.SetLabel(ActiveResizeKernels().target);
}

void Filters(benchmark::State& state, Interpolation interpolation) {
  AxisFilter filter;
  HorizontalTable table;
  int size = 0;
  for (auto _ : state) {
    size = (size + 7) % 100;
    ComputeFilter(interpolation, 250 + size, kSize, {0, kSize}, &filter);
    MakeHorizontalTable(filter, false, 0, ActiveResizeKernels().lanes, ActiveResizeKernels().dots_of_bytes, &table);
    benchmark::ClobberMemory();
  }
}

bool TargetsAgree() {
  const RgbImage crop = Noise(257, 300);
  std::vector<uint8_t> first;
  for (int64_t targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    hwy::SetSupportedTargetsForTest(targets & -targets);
    hwy::GetChosenTarget().DeInit();
    std::vector<uint8_t> out(3 * kSize * kSize);
    const PackPlan plan = MakePackPlan(MakeRecipe(DType::kUInt8));
    Resizer resizer;
    resizer.Run(Job(crop.height, crop.width, Interpolation::kBicubic), crop,
                {0, 0, crop.height, crop.width}, [&](int row, const uint8_t* planes) {
                  PackRow(plan, {planes, PlaneStride(kSize)}, row, kSize, kSize, out.data());
                });
    if (first.empty()) first = out;
    if (out != first) return false;
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
  return true;
}

// The mean training crop of ImageNet (0.41 of 468 × 401), a small and a large one.
void Sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({257, 300})->Args({120, 150})->Args({375, 500})->Unit(benchmark::kMicrosecond);
}

BENCHMARK_CAPTURE(TrainTransform, bilinear_float32, Interpolation::kBilinear, DType::kFloat32)
    ->Apply(Sizes);
BENCHMARK_CAPTURE(TrainTransform, bilinear_float16, Interpolation::kBilinear, DType::kFloat16)
    ->Apply(Sizes);
BENCHMARK_CAPTURE(TrainTransform, bilinear_uint8, Interpolation::kBilinear, DType::kUInt8)
    ->Apply(Sizes);
BENCHMARK_CAPTURE(TrainTransform, bicubic_float32, Interpolation::kBicubic, DType::kFloat32)
    ->Apply(Sizes);
BENCHMARK_CAPTURE(TrainTransform, lanczos_float32, Interpolation::kLanczos, DType::kFloat32)
    ->Apply(Sizes);
BENCHMARK_CAPTURE(Filters, bilinear, Interpolation::kBilinear)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Filters, bicubic, Interpolation::kBicubic)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  if (!headrace::TargetsAgree()) {
    std::fprintf(stderr, "resize_bench: the SIMD targets disagree\n");
    return 1;
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
