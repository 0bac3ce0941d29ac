// What a sample's place in the order costs, beside some 200 µs for decoding it.
#include <benchmark/benchmark.h>

#include "core/batch/order.h"

namespace headrace {
namespace {

void BM_SampleAt(benchmark::State& state) {
  const auto size = static_cast<uint64_t>(state.range(0));
  const EpochOrder order(size, 1, 0, static_cast<Shuffle>(state.range(1)));
  uint64_t position = 0;
  for (auto _ : state) benchmark::DoNotOptimize(order.SampleAt(position++));
}
// ImageNet, the best and the worst size for cycle walking.
BENCHMARK(BM_SampleAt)->ArgsProduct({{1281167, 1 << 20, (1 << 20) + 1}, {1, 2}})->ArgNames({"size", "shuffle"});

void BM_EpochOrder(benchmark::State& state) {
  uint64_t epoch = 0;
  for (auto _ : state) benchmark::DoNotOptimize(EpochOrder(1281167, 1, epoch++, Shuffle::kGlobal));
}
BENCHMARK(BM_EpochOrder);

}  // namespace
}  // namespace headrace
