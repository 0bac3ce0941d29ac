// Batches of the train transform on a GPU: what a batch costs the host and the GPU. Prints JSON.
//   gpu_bench PHOTO_FOLDER [BATCH_SIZE [LANES [mapped]]]
#include <cuda_runtime_api.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>
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

using Images = std::vector<std::unique_ptr<testing::IndexedJpeg>>;

// One lane's batches of these images.
class Lane {
 public:
  Lane(const Images& images, uint32_t batch_size, bool mapped) : images_(images), batch_size_(batch_size), mapped_(mapped), draws_(batch_size) {
    recipe_.transforms = {RandomResizedCrop{.height = 224, .width = 224}, RandomHorizontalFlip{}};
    recipe_.normalize = Normalize{};
    recipe_.dtype = DType::kFloat16;
    recipe_.memory_format = MemoryFormat::kChannelsLast;
    for (const auto& image : images) views_.push_back(image->View());
  }
  absl::Status Open() {
    HEADRACE_ASSIGN_OR_RETURN(gpu_, GpuRenderer::Create(0, uint64_t{1} << 28));
    return cudaMalloc(&out_, size_t{batch_size_} * 3 * 224 * 224 * 2) == cudaSuccess ? absl::OkStatus() : absl::InternalError("no memory");
  }

  absl::Status Start(int batch) {
    HEADRACE_RETURN_IF_ERROR(gpu_->Begin(recipe_));
    for (uint32_t i = 0; i < batch_size_; ++i) {
      const uint64_t position = static_cast<uint64_t>(batch) * batch_size_ + i;
      const size_t number = position % images_.size();
      const testing::IndexedJpeg& image = *images_[number];
      DrawSample(recipe_, 1, 0, position, static_cast<int>(image.info.oriented_width()),
                 static_cast<int>(image.info.oriented_height()), &draws_[i]);
      const auto range = gpu_->Plan({&image.info, &views_[number], &image.frame, &draws_[i], i, number + 1});
      if (!range.ok()) continue;
      const uint64_t end = std::min<uint64_t>(range->end, image.file.size()), bytes = end - range->begin;
      if (mapped_) {
        (void)gpu_->AddMapped(image.file.data() + range->begin, bytes);
      } else {
        HEADRACE_ASSIGN_OR_RETURN(uint8_t* const staged, gpu_->Stage(bytes));
        std::memcpy(staged, image.file.data() + range->begin, bytes);
        (void)gpu_->AddStaged(bytes);
      }
    }
    launched_ = Seconds(CLOCK_MONOTONIC);
    return gpu_->Launch(out_);
  }
  absl::Status Finish() { return gpu_->Finish(&left_); }
  // One behind the other.
  absl::Status Make(int batches) {
    for (int batch = 0; batch < batches; ++batch) {
      HEADRACE_RETURN_IF_ERROR(Start(batch));
      if (batch > 0) HEADRACE_RETURN_IF_ERROR(Finish());
    }
    return Finish();
  }

  double launched() const { return launched_; }
  size_t left() const { return left_.size(); }
  uint64_t used_bytes() const { return gpu_->used_bytes(); }

 private:
  const Images& images_;
  const uint32_t batch_size_;
  const bool mapped_;
  Recipe recipe_;
  std::vector<EntryView> views_;
  std::vector<Draw> draws_;
  std::unique_ptr<GpuRenderer> gpu_;
  void* out_ = nullptr;
  std::vector<uint32_t> left_;
  double launched_ = 0;
};

absl::Status Run(const std::string& folder, uint32_t batch_size, int num_lanes, bool mapped) {
  Images images;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const auto bytes = ReadFile(entry.path(), 64 << 20);
    auto image = std::make_unique<testing::IndexedJpeg>();
    if (bytes.ok() && image->Make({bytes->begin(), bytes->end()}, kDefaultEntryInterval)) images.push_back(std::move(image));
  }
  if (images.empty()) return absl::NotFoundError("no photos");
  std::vector<std::unique_ptr<Lane>> lanes;
  for (int i = 0; i < num_lanes; ++i) {
    lanes.push_back(std::make_unique<Lane>(images, batch_size, mapped));
    HEADRACE_RETURN_IF_ERROR(lanes.back()->Open());
  }
  for (const auto& image : images) {
    if (mapped && cudaHostRegister(image->file.data(), image->file.size(), cudaHostRegisterDefault) != cudaSuccess) {
      return absl::InternalError("not registered");
    }
  }
  // One at a time.
  std::vector<double> host_ms, gpu_ms;
  Lane& first = *lanes[0];
  for (int batch = 0; batch < kBatches + kWarmUp; ++batch) {
    const double host_began = Seconds(CLOCK_MONOTONIC);
    HEADRACE_RETURN_IF_ERROR(first.Start(batch));
    const double host = Seconds(CLOCK_MONOTONIC) - host_began;
    HEADRACE_RETURN_IF_ERROR(first.Finish());
    if (batch < kWarmUp) continue;
    host_ms.push_back(1000 * host);
    gpu_ms.push_back(1000 * (Seconds(CLOCK_MONOTONIC) - first.launched()));
  }
  double began = 0, cpu_began = 0;
  for (const int batches : {kWarmUp, 4 * kBatches}) {
    began = Seconds(CLOCK_MONOTONIC);
    cpu_began = Seconds(CLOCK_PROCESS_CPUTIME_ID);
    std::vector<std::thread> threads;
    std::vector<absl::Status> made(lanes.size());
    for (size_t i = 0; i < lanes.size(); ++i) threads.emplace_back([&, i] { made[i] = lanes[i]->Make(batches); });
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& status : made) HEADRACE_RETURN_IF_ERROR(status);
  }
  const double seconds = Seconds(CLOCK_MONOTONIC) - began, cpu = Seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_began;
  const double samples = 4.0 * kBatches * batch_size * num_lanes;
  printf("{\"batch_size\": %u, \"lanes\": %d, \"mapped\": %d, \"host_ms\": %.3f, \"gpu_ms\": %.3f, \"images_per_s\": %.0f, "
         "\"cpu_s_per_1000\": %.4f, \"memory_mb\": %.0f, \"left\": %zu}\n",
         batch_size, num_lanes, mapped, Median(host_ms), Median(gpu_ms), samples / seconds, 1000 * cpu / samples,
         static_cast<double>(first.used_bytes()) / 1e6, first.left());
  return absl::OkStatus();
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: %s PHOTO_FOLDER [BATCH_SIZE [LANES [mapped]]]\n", argv[0]);
    return 2;
  }
  const auto number = [&](int i, int otherwise) { return argc > i ? atoi(argv[i]) : otherwise; };
  const absl::Status status = headrace::Run(argv[1], static_cast<uint32_t>(number(2, 256)), number(3, 1), argc > 4);
  if (!status.ok()) fprintf(stderr, "%s\n", status.ToString().c_str());
  return !status.ok();
}
