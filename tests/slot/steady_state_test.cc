// Serving allocates nothing once every buffer has its size. A program of its own, because it counts all of `new`.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "core/slot/sample_filler.h"
#include "tests/support/tiny_dataset.h"

namespace {

std::atomic<uint64_t> allocations = 0;

void* Counted(size_t bytes, size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return Counted(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, std::align_val_t alignment) { return Counted(bytes, static_cast<size_t>(alignment)); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace headrace {
namespace {

// Images of many sizes, with entry points, each at several positions.
TEST(SampleFiller, AllocatesNothingInTheSteadyState) {
  const testing::TinyDataset tiny({.samples = 40, .files = 40, .side_px = 150});
  SessionSpec spec;
  spec.dataset = tiny.Open();
  spec.batch_size = 1;
  spec.recipe.normalize = Normalize{};
  for (const bool crop : {true, false}) {
    if (crop) {
      spec.recipe.transforms = {RandomResizedCrop{.height = 64, .width = 64}, RandomHorizontalFlip{}};
    } else {
      spec.recipe.transforms = {Resize{.shorter_side = 72, .interpolation = Interpolation::kBicubic},
                                CenterCrop{.height = 64, .width = 64}};
    }
    const BatchLayout layout = *MakeBatchLayout(spec);
    std::vector<uint8_t> slot(layout.slot_bytes);
    BatchTexts texts;
    texts.values.resize(layout.fields.size());
    VerifiedSamples verified(40);
    SampleFiller filler;
    const auto fill_all = [&] {
      for (uint64_t sample = 0; sample < 40; ++sample) {
        for (uint64_t position = 0; position < 5; ++position) {
          const SampleFiller::Target target = {slot.data(), 0, 0, position, &texts};
          ASSERT_TRUE(filler.Fill(spec, layout, sample, target, Verify::kOnce, &verified).ok());
        }
      }
    };
    fill_all();
    const uint64_t before = allocations;
    EXPECT_GT(before, 0u);
    fill_all();
    EXPECT_EQ(allocations - before, 0u) << (crop ? "crops" : "whole images");
  }
}

}  // namespace
}  // namespace headrace
