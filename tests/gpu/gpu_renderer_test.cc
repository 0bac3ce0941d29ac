// Batches made on a GPU against the same samples made on the CPU: every bit must be the same. Skipped without a GPU.
#include "core/augment/gpu/renderer.h"

#include "tests/gpu/batch_test.h"
#include "tests/gpu/gpu_maker.h"

namespace headrace {
namespace {

using testing::BatchMember;
using testing::GpuMaker;

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
  GivesTheCpusPixelsAndFloats(&maker, 640, 15);
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
