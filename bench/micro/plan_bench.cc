// What a thread of the GPU engine does on the CPU for each sample of the train transform, without a GPU. Prints JSON.
//   plan_bench DATASET [BATCH_SIZE [BATCHES]]
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <memory_resource>
#include <vector>

#include "core/augment/gpu/layout.h"
#include "core/augment/gpu/planner.h"
#include "core/batch/order.h"
#include "core/read/shard_map.h"
#include "core/slot/sample_filler.h"

namespace headrace {
namespace {

double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Plans bursts and throws them away.
class PlanLane : public GpuLane {
 public:
  void Begin(const Recipe& recipe) override { (void)planner_.Begin(recipe); }
  absl::StatusOr<ByteRange> Plan(const GpuSample& sample) override { return planner_.Plan(sample); }
  absl::StatusOr<uint8_t*> Stage(uint64_t bytes) override { return planner_.Stage(bytes); }
  absl::Status AddStaged(uint64_t bytes) override { return planner_.AddStaged(bytes); }
  absl::Status AddMapped(const uint8_t* bytes, uint64_t size) override { return planner_.AddMapped(bytes, size); }
  void Launch(DeviceRing*, int) override {
    brought_bytes = LayOut(planner_).brought_bytes;
  }
  bool IsDone() override { return true; }
  void Finish(std::vector<uint32_t>*) override {}

  uint64_t brought_bytes = 0;  // of the last burst

 private:
  gpu::Planner planner_{std::pmr::get_default_resource()};
};

absl::Status Run(const std::string& dir, int batch_size, int batches) {
  SessionSpec spec;
  HEADRACE_ASSIGN_OR_RETURN(spec.dataset, Dataset::Open(dir));
  spec.recipe.transforms = {RandomResizedCrop{.height = 224, .width = 224}, RandomHorizontalFlip{}};
  spec.recipe.normalize = Normalize{};
  spec.recipe.dtype = DType::kFloat16;
  spec.recipe.memory_format = MemoryFormat::kChannelsLast;
  spec.batch_size = batch_size;
  spec.shuffle = Shuffle::kGlobal;
  spec.engine = Engine::kGpu;
  HEADRACE_RETURN_IF_ERROR(spec.Validate());
  HEADRACE_ASSIGN_OR_RETURN(const BatchLayout layout, MakeBatchLayout(spec));
  HEADRACE_ASSIGN_OR_RETURN(const auto map, ShardMap::Create(spec.dataset));
  const auto known = [](const uint8_t* address, uint64_t) -> absl::StatusOr<ShardMap::Pinned> {
    return ShardMap::Pinned(const_cast<uint8_t*>(address), [](void*) {});
  };
  for (size_t part = 0; part < map->num_parts(); ++part) HEADRACE_RETURN_IF_ERROR(map->Add(part, known, [] { return false; }));
  std::vector<uint8_t> slot(layout.slot_bytes);
  BatchTexts texts;
  SampleFiller filler;
  PlanLane lane;
  double began = 0;
  uint64_t left = 0;
  constexpr int kWarmUp = 8;
  for (int batch = -kWarmUp; batch < batches; ++batch) {
    if (batch == 0) began = CpuSeconds();
    const auto steps = static_cast<int>(spec.dataset->size() / static_cast<uint64_t>(batch_size));
    const auto epoch = static_cast<uint64_t>(batch + kWarmUp) / static_cast<uint64_t>(steps);
    const EpochOrder order(spec.dataset->size(), spec.seed, epoch, spec.shuffle);
    texts.Reset(layout);
    lane.Begin(spec.recipe);
    const auto first = static_cast<uint64_t>((batch + kWarmUp) % steps * batch_size);
    std::vector<uint64_t> samples(static_cast<size_t>(batch_size));
    for (size_t i = 0; i < samples.size(); ++i) samples[i] = order.SampleAt(first + i);
    for (uint32_t place = 0; place < static_cast<uint32_t>(batch_size); ++place) {
      const uint64_t position = first + place;
      const SampleFiller::Target target{SlotMemory(slot.data()), place, epoch, position, &texts};
      SampleFiller::Prefetch(*spec.dataset, samples, place, map.get());
      left += !filler.AddToBurst(spec, layout, samples[place], target, Verify::kNever, nullptr, map.get(), &lane).ok();
    }
    lane.Launch(nullptr, 0);
  }
  const double samples = static_cast<double>(batch_size) * batches;
  printf("{\"batch_size\": %d, \"cpu_us_per_sample\": %.2f, \"brought_bytes_per_sample\": %.0f, \"left\": %llu}\n",
         batch_size, 1e6 * (CpuSeconds() - began) / samples, static_cast<double>(lane.brought_bytes) / batch_size, static_cast<unsigned long long>(left));
  return absl::OkStatus();
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: %s DATASET [BATCH_SIZE [BATCHES]]\n", argv[0]);
    return 2;
  }
  const absl::Status status = headrace::Run(argv[1], argc > 2 ? atoi(argv[2]) : 256, argc > 3 ? atoi(argv[3]) : 200);
  if (!status.ok()) fprintf(stderr, "%s\n", status.ToString().c_str());
  return !status.ok();
}
