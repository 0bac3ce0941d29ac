// Batches made on a GPU against the same samples made on the CPU: every bit must be the same. Skipped without a GPU.
#include "core/augment/gpu/renderer.h"

#include <cuda_runtime_api.h>

#include "tests/gpu/batch_test.h"

namespace headrace {
namespace {

using testing::BatchMember;

class GpuMaker : public testing::BatchMaker {
 public:
  explicit GpuMaker(GpuRenderer* gpu) : gpu_(gpu) {}
  ~GpuMaker() override {
    cudaFree(memory_);
    for (void* pinned : pinned_) cudaFreeHost(pinned);
  }
  absl::Status Begin(const Recipe& recipe) override { return gpu_->Begin(recipe); }
  absl::StatusOr<ByteRange> Plan(const GpuSample& sample) override { return gpu_->Plan(sample); }
  uint8_t* Stage(uint64_t bytes) override { return *gpu_->Stage(bytes); }
  absl::Status AddStaged(uint64_t bytes) override { return gpu_->AddStaged(bytes); }
  // At odd addresses, as they lie in a shard, up to the end of what is pinned.
  absl::Status AddMapped(const uint8_t* bytes, uint64_t size) override {
    constexpr uint64_t kPageBytes = 4096;
    const uint64_t room = (size + kPageBytes - 1) / kPageBytes * kPageBytes;
    void* pinned = nullptr;
    EXPECT_EQ(cudaMallocHost(&pinned, room), cudaSuccess);
    pinned_.push_back(pinned);
    uint8_t* const at = static_cast<uint8_t*>(pinned) + (room - size);
    std::copy_n(bytes, size, at);
    return gpu_->AddMapped(at, size);
  }
  absl::Status Make(std::vector<uint8_t>* out, std::vector<uint32_t>* left) override {
    EXPECT_EQ(cudaFree(memory_), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&memory_, out->size()), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(memory_, out->data(), out->size(), cudaMemcpyHostToDevice), cudaSuccess);
    HEADRACE_RETURN_IF_ERROR(gpu_->Launch(memory_));
    HEADRACE_RETURN_IF_ERROR(gpu_->Finish(left));
    EXPECT_EQ(cudaMemcpy(out->data(), memory_, out->size(), cudaMemcpyDeviceToHost), cudaSuccess);
    for (void* pinned : std::exchange(pinned_, {})) EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
    return absl::OkStatus();
  }

 private:
  GpuRenderer* const gpu_;
  void* memory_ = nullptr;
  std::vector<void*> pinned_;
};

class GpuRendererTest : public testing::BatchTest {
 protected:
  void SetUp() override {
    auto renderer = GpuRenderer::Create(0, uint64_t{3} << 29);
    if (absl::IsUnavailable(renderer.status())) GTEST_SKIP() << renderer.status();
    ASSERT_TRUE(renderer.ok()) << renderer.status();
    gpu_ = std::move(*renderer);
  }

  std::unique_ptr<GpuRenderer> gpu_;
};

TEST_F(GpuRendererTest, GivesTheCpusPixelsAndFloats) {
  GpuMaker maker(gpu_.get());
  GivesTheCpusPixelsAndFloats(&maker, 500);
}

TEST_F(GpuRendererTest, HostileEntryPointsGiveTheCpusPixelsOrAreLeftToIt) {
  GpuMaker maker(gpu_.get());
  HostileEntryPointsGiveTheCpusPixelsOrAreLeftToIt(&maker, 50);
}

TEST_F(GpuRendererTest, DamagedDataGivesTheCpusPixelsOrIsLeftToIt) {
  GpuMaker maker(gpu_.get());
  DamagedDataGivesTheCpusPixelsOrIsLeftToIt(&maker, 50);
}

TEST_F(GpuRendererTest, WhatDoesNotFitTheMemoryIsRefusedAndTheRestIsMade) {
  std::mt19937 random(79);
  Recipe recipe;
  recipe.transforms = {RandomResizedCrop{.height = 224, .width = 224}};
  std::vector<std::unique_ptr<BatchMember>> members;
  members.push_back(MakeMember(&random, recipe, 0));
  auto small = GpuRenderer::Create(0, 1 << 16);
  ASSERT_TRUE(small.ok()) << small.status();
  ASSERT_TRUE((*small)->Begin(recipe).ok());
  GpuMaker tiny(small->get());
  EXPECT_TRUE(absl::IsResourceExhausted(Add(&tiny, members[0].get(), 0, /*mapped=*/false)));

  small = GpuRenderer::Create(0, 16 << 20);
  ASSERT_TRUE(small.ok()) << small.status();
  ASSERT_TRUE((*small)->Begin(recipe).ok());
  int added = 0;
  absl::Status status;
  GpuMaker maker(small->get());
  while ((status = Add(&maker, members[0].get(), 0, /*mapped=*/false)).ok() && added < 1000) ++added;
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_GT(added, 0);
  std::vector<uint8_t> out(3 * 224 * 224 * DTypeBytes(recipe.dtype));  // all of them at place 0
  std::vector<uint32_t> left;
  ASSERT_TRUE(maker.Make(&out, &left).ok());
  EXPECT_LE((*small)->used_bytes(), uint64_t{16} << 20);
  EXPECT_TRUE(left.empty());
  Compare(&maker, members, recipe, &left);
}

}  // namespace
}  // namespace headrace
