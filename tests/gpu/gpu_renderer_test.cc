// Batches made on a GPU against the same samples made on the CPU: every bit must be the same. Skipped without a GPU.
#include "core/augment/gpu/renderer.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "core/augment/render.h"
#include "tests/augment/random_recipe.h"
#include "tests/support/indexed_files.h"

namespace headrace {
namespace {

using testing::IndexedFiles;
using testing::IndexedJpeg;
using testing::kEntryIntervals;
using testing::RandomRecipe;

constexpr uint32_t kBatch = 64;
constexpr int kBatches = 500;  // about 21,000 samples that the GPU makes

class GpuRendererTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto renderer = GpuRenderer::Create(0, uint64_t{3} << 29);
    if (absl::IsUnavailable(renderer.status())) GTEST_SKIP() << renderer.status();
    ASSERT_TRUE(renderer.ok()) << renderer.status();
    gpu_ = std::move(*renderer);
    ASSERT_EQ(cudaMalloc(&memory_, kMemoryBytes), cudaSuccess);
  }
  void TearDown() override {
    gpu_.reset();
    cudaFree(memory_);
  }

  // An image of a batch with what was drawn for it.
  struct Member {
    std::unique_ptr<IndexedJpeg> image;
    ImageInfo info;
    std::unique_ptr<EntryView> view;
    Draw draw;
  };

  Member Make(std::mt19937* random, const Recipe& recipe, uint64_t position) {
    Member member;
    member.image = std::make_unique<IndexedJpeg>();
    EXPECT_TRUE(member.image->Make(IndexedFiles()[(*random)() % IndexedFiles().size()], kEntryIntervals[(*random)() % 4]));
    member.info = member.image->info;
    if ((*random)() % 3 == 0) member.info.orientation = static_cast<uint8_t>(1 + (*random)() % 8);  // as if EXIF had said so
    DrawSample(recipe, 7, 0, position, static_cast<int>(member.info.oriented_width()),
               static_cast<int>(member.info.oriented_height()), &member.draw);
    return member;
  }

  // Makes the batch on both; `left`: places that the GPU leaves to the CPU.
  void Compare(const std::vector<Member>& members, const Recipe& recipe, std::vector<uint32_t>* left) {
    const auto size = recipe.OutputSize();
    ASSERT_TRUE(size.ok()) << size.status();
    const size_t bytes = static_cast<size_t>(3 * (*size)[0] * (*size)[1] * DTypeBytes(recipe.dtype));
    ASSERT_LE(bytes * members.size(), kMemoryBytes);
    ASSERT_TRUE(gpu_->Begin(recipe).ok());
    for (uint32_t i = 0; i < members.size(); ++i) {
      const Member& member = members[i];
      const auto range = GpuRenderer::NeededBytes(member.info, *member.view, member.draw);
      if (!range.ok()) {
        left->push_back(i);
        continue;
      }
      const uint64_t end = std::min<uint64_t>(range->end, member.image->file.size());
      const GpuSample sample = {&member.info, member.view.get(), &member.image->frame,
                                absl::MakeConstSpan(member.image->file).subspan(range->begin, end - range->begin), range->begin,
                                &member.draw, i};
      const absl::Status added = gpu_->Add(sample);
      ASSERT_FALSE(absl::IsResourceExhausted(added)) << added;
      if (!added.ok()) left->push_back(i);
    }
    ASSERT_EQ(cudaMemset(memory_, 0x5A, bytes * members.size()), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    ASSERT_TRUE(gpu_->Launch(memory_).ok());
    const absl::Status finished = gpu_->Finish(left);
    ASSERT_TRUE(finished.ok()) << finished;
    std::vector<uint8_t> got(bytes * members.size());
    ASSERT_EQ(cudaMemcpy(got.data(), memory_, got.size(), cudaMemcpyDeviceToHost), cudaSuccess);
    std::vector<uint8_t> expected(bytes);
    for (uint32_t i = 0; i < members.size(); ++i) {
      if (std::find(left->begin(), left->end(), i) != left->end()) continue;
      const Member& member = members[i];
      const auto read = [&](uint64_t begin, uint64_t end) -> absl::StatusOr<absl::Span<const uint8_t>> {
        return absl::MakeConstSpan(member.image->file).subspan(begin, end - begin);
      };
      const EncodedImage encoded = {&member.info, member.image->file.size(), read, member.view.get(), &member.image->frame};
      const absl::Status status = cpu_.Render(encoded, recipe, member.draw, expected.data(), nullptr);
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(std::memcmp(expected.data(), got.data() + bytes * i, bytes), 0)
          << "place " << i << ", " << member.info.width << " x " << member.info.height << ", orientation "
          << int{member.info.orientation} << ", " << (*size)[0] << " x " << (*size)[1] << ", type " << static_cast<int>(recipe.dtype);
    }
  }

  static constexpr size_t kMemoryBytes = size_t{1} << 28;
  std::unique_ptr<GpuRenderer> gpu_;
  SampleRenderer cpu_;
  void* memory_ = nullptr;
};

TEST_F(GpuRendererTest, GivesTheCpusPixelsAndFloats) {
  std::mt19937 random(77);
  size_t made = 0, left_to_cpu = 0;
  for (int batch = 0; batch < kBatches; ++batch) {
    const Recipe recipe = RandomRecipe(&random).Make();
    std::vector<Member> members;
    for (uint32_t i = 0; i < kBatch; ++i) {
      members.push_back(Make(&random, recipe, static_cast<uint64_t>(batch) * kBatch + i));
      members.back().view = std::make_unique<EntryView>(members.back().image->View());
    }
    std::vector<uint32_t> left;
    Compare(members, recipe, &left);
    if (HasFatalFailure()) FAIL() << "batch " << batch;
    made += members.size() - left.size();
    left_to_cpu += left.size();
  }
  EXPECT_GE(made, 20000u) << left_to_cpu << " were left to the CPU";
}

TEST_F(GpuRendererTest, DamagedDataGivesTheCpusPixelsOrIsLeftToIt) {
  std::mt19937 random(78);
  Recipe recipe;
  recipe.dtype = DType::kUInt8;
  recipe.transforms = {RandomResizedCrop{.height = 32, .width = 32}};
  size_t left_to_cpu = 0;
  for (int batch = 0; batch < 50; ++batch) {
    std::vector<Member> members;
    for (uint32_t i = 0; i < kBatch; ++i) {
      Member member = Make(&random, recipe, static_cast<uint64_t>(batch) * kBatch + i);
      std::vector<uint8_t>& file = member.image->file;
      for (uint64_t flips = 1 + random() % 3; flips > 0; --flips) {
        const size_t at = member.image->frame.scan_offset + random() % (file.size() - member.image->frame.scan_offset);
        file[at] = static_cast<uint8_t>(file[at] ^ 1u << random() % 8);
      }
      member.view = std::make_unique<EntryView>(member.image->View());
      members.push_back(std::move(member));
    }
    std::vector<uint32_t> left;
    Compare(members, recipe, &left);
    if (HasFatalFailure()) FAIL() << "batch " << batch;
    left_to_cpu += left.size();
  }
  EXPECT_GT(left_to_cpu, 50 * kBatch / 30);
  EXPECT_LT(left_to_cpu, 50 * kBatch);
}

TEST_F(GpuRendererTest, WhatDoesNotFitTheMemoryIsRefusedAndTheRestIsMade) {
  std::mt19937 random(79);
  Recipe recipe;
  recipe.transforms = {RandomResizedCrop{.height = 224, .width = 224}};
  std::vector<Member> members;
  members.push_back(Make(&random, recipe, 0));
  Member& member = members[0];
  member.view = std::make_unique<EntryView>(member.image->View());
  const GpuSample sample = {&member.info, member.view.get(), &member.image->frame, member.image->file, 0, &member.draw, 0};
  auto small = GpuRenderer::Create(0, 1 << 16);
  ASSERT_TRUE(small.ok()) << small.status();
  ASSERT_TRUE((*small)->Begin(recipe).ok());
  EXPECT_TRUE(absl::IsResourceExhausted((*small)->Add(sample)));

  small = GpuRenderer::Create(0, 16 << 20);
  ASSERT_TRUE(small.ok()) << small.status();
  ASSERT_TRUE((*small)->Begin(recipe).ok());
  int added = 0;
  absl::Status status;
  while ((status = (*small)->Add(sample)).ok() && added < 1000) ++added;
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_GT(added, 0);
  ASSERT_TRUE((*small)->Launch(memory_).ok());
  EXPECT_LE((*small)->used_bytes(), uint64_t{16} << 20);
  gpu_.swap(*small);
  std::vector<uint32_t> left;
  ASSERT_TRUE(gpu_->Finish(&left).ok());
  EXPECT_TRUE(left.empty());
  Compare(members, recipe, &left);
}

}  // namespace
}  // namespace headrace
