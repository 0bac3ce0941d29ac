// Batches of the train transform on a GPU: what a batch costs the host and the GPU. Prints JSON.
//   gpu_bench PHOTO_FOLDER [BATCH_SIZE [mapped]]
#include <cuda_runtime_api.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "core/augment/draw.h"
#include "core/base/file.h"
#include "core/augment/gpu/renderer.h"
#include "tests/support/indexed_jpeg.h"

namespace headrace {
namespace {

constexpr int kBatches = 40, kWarmUp = 5;

double Seconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

int Run(const std::string& folder, uint32_t batch_size, bool mapped) {
  std::vector<std::unique_ptr<testing::IndexedJpeg>> images;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const auto bytes = ReadFile(entry.path(), 64 << 20);
    auto image = std::make_unique<testing::IndexedJpeg>();
    if (bytes.ok() && image->Make({bytes->begin(), bytes->end()}, kDefaultEntryInterval)) images.push_back(std::move(image));
  }
  auto renderer = GpuRenderer::Create(0, uint64_t{3} << 29);
  if (images.empty() || !renderer.ok()) {
    fprintf(stderr, "%s\n", images.empty() ? "no photos" : renderer.status().ToString().c_str());
    return 1;
  }
  GpuRenderer& gpu = **renderer;
  for (const auto& image : images) {
    if (mapped && cudaHostRegister(image->file.data(), image->file.size(), cudaHostRegisterDefault) != cudaSuccess) return 1;
  }
  Recipe recipe;
  recipe.transforms = {RandomResizedCrop{.height = 224, .width = 224}, RandomHorizontalFlip{}};
  recipe.normalize = Normalize{};
  recipe.dtype = DType::kFloat16;
  recipe.memory_format = MemoryFormat::kChannelsLast;
  void* out = nullptr;
  if (cudaMalloc(&out, size_t{batch_size} * 3 * 224 * 224 * 2) != cudaSuccess) return 1;
  std::vector<EntryView> views;
  for (const auto& image : images) views.push_back(image->View());
  std::vector<Draw> draws(batch_size);
  double launched = 0;
  const auto start = [&](int batch) {
    absl::Status status = gpu.Begin(recipe);
    for (uint32_t i = 0; i < batch_size; ++i) {
      const uint64_t position = static_cast<uint64_t>(batch) * batch_size + i;
      const size_t number = position % images.size();
      const testing::IndexedJpeg& image = *images[number];
      DrawSample(recipe, 1, 0, position, static_cast<int>(image.info.oriented_width()),
                 static_cast<int>(image.info.oriented_height()), &draws[i]);
      const auto range = gpu.Plan({&image.info, &views[number], &image.frame, &draws[i], i});
      if (!range.ok()) continue;
      const uint64_t end = std::min<uint64_t>(range->end, image.file.size()), bytes = end - range->begin;
      if (mapped) {
        const uint64_t scan_end = std::min<uint64_t>(image.frame.scan_offset + uint64_t{views[number].scan_bytes()}, end);
        (void)gpu.AddMapped(image.file.data() + range->begin, absl::MakeConstSpan(image.file).subspan(scan_end, end - scan_end));
      } else {
        const auto staged = gpu.Stage(bytes);
        if (!staged.ok()) continue;
        std::memcpy(*staged, image.file.data() + range->begin, bytes);
        (void)gpu.AddStaged(bytes);
      }
    }
    launched = Seconds(CLOCK_MONOTONIC);
    if (status.ok()) status = gpu.Launch(out);
    if (!status.ok()) fprintf(stderr, "%s\n", status.ToString().c_str());
    return status.ok();
  };
  // One at a time.
  std::vector<double> host_ms, gpu_ms;
  std::vector<uint32_t> left;
  for (int batch = 0; batch < kBatches + kWarmUp; ++batch) {
    const double host_began = Seconds(CLOCK_MONOTONIC);
    if (!start(batch)) return 1;
    const double host = Seconds(CLOCK_MONOTONIC) - host_began;
    if (!gpu.Finish(&left).ok()) return 1;
    if (batch < kWarmUp) continue;
    host_ms.push_back(1000 * host);
    gpu_ms.push_back(1000 * (Seconds(CLOCK_MONOTONIC) - launched));
  }
  // One behind the other.
  const double began = Seconds(CLOCK_MONOTONIC), cpu_began = Seconds(CLOCK_PROCESS_CPUTIME_ID);
  for (int batch = 0; batch < kBatches; ++batch) {
    if (!start(batch) || (batch > 0 && !gpu.Finish(&left).ok())) return 1;
  }
  if (!gpu.Finish(&left).ok()) return 1;
  const double seconds = Seconds(CLOCK_MONOTONIC) - began, cpu = Seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_began;
  const double samples = static_cast<double>(kBatches) * batch_size;
  printf("{\"batch_size\": %u, \"host_ms\": %.3f, \"gpu_ms\": %.3f, \"images_per_s\": %.0f, \"cpu_s_per_1000\": %.4f, \"memory_mb\": %.0f, \"left\": %zu}\n",
         batch_size, Median(host_ms), Median(gpu_ms), samples / seconds, 1000 * cpu / samples, static_cast<double>(gpu.used_bytes()) / 1e6,
         left.size());
  return 0;
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: %s PHOTO_FOLDER [BATCH_SIZE [mapped]]\n", argv[0]);
    return 2;
  }
  return headrace::Run(argv[1], argc > 2 ? static_cast<uint32_t>(atoi(argv[2])) : 256, argc > 3);
}
