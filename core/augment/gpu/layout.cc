#include "core/augment/gpu/layout.h"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace headrace::gpu {
namespace {

constexpr uint64_t kAlignment = 256;

uint64_t RoundUp(uint64_t value) { return (value + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

Layout LayOut(const Planner& planner) {
  Layout layout;
  uint64_t end = 0;
  Layout::Piece* next = layout.pieces.data();
  const auto bring = [&](const auto& values) {
    const uint64_t bytes = values.size() * sizeof(*values.data());
    *next++ = {values.data(), bytes, end};
    end = RoundUp(end + bytes);
  };
  bring(planner.images);
  bring(planner.rows);
  bring(planner.entries);
  bring(planner.specs);
  bring(planner.quant);
  bring(planner.numbers);
  for (const auto& group : planner.chunks) {
    for (const auto& list : group) bring(list);
  }
  bring(planner.values);
  layout.brought_bytes = std::exchange(end, 0);
  const auto take = [&](uint64_t bytes) { return std::exchange(end, RoundUp(end + bytes)); };
  layout.tables = take(planner.specs.size() * sizeof(HuffmanTable));
  layout.made_numbers = take(planner.num_made_numbers * sizeof(int32_t));
  layout.lengths = take(planner.num_runs * sizeof(uint32_t));
  layout.words = take(planner.num_words * sizeof(uint32_t));
  layout.coefficients = take(planner.num_blocks * 64 * sizeof(int16_t));
  layout.planes = take(planner.num_samples);
  layout.written_bytes = end;
  return layout;
}

Burst PlaceBurst(const Planner& planner, const Layout& layout, uint8_t* brought, uint8_t* written, uint8_t* failed, void* out) {
  Burst burst = {};
  const auto place = [&](uint8_t* at, auto* member) { *member = reinterpret_cast<std::remove_pointer_t<decltype(member)>>(at); };
  const Layout::Piece* next = layout.pieces.data();
  const auto take = [&](auto* member) { place(brought + (next++)->at, member); };
  take(&burst.images);
  take(&burst.rows);
  take(&burst.entries);
  take(&burst.specs);
  take(&burst.quant);
  take(&burst.numbers[0]);
  for (size_t group = 0; group < kGroups; ++group) {
    for (size_t task = 0; task < kTasks; ++task) {
      take(&burst.chunks[group][task].chunks);
      burst.chunks[group][task].size = static_cast<uint32_t>(planner.chunks[group][task].size());
    }
  }
  take(&burst.values);
  burst.staged = planner.staged.data();
  burst.failed = failed;
  place(written + layout.tables, &burst.tables);
  burst.num_tables = static_cast<uint32_t>(planner.specs.size());
  for (const Image& image : planner.images) burst.most_tables = std::max(burst.most_tables, image.num_tables);
  place(written + layout.made_numbers, &burst.numbers[1]);
  place(written + layout.lengths, &burst.lengths);
  place(written + layout.words, &burst.words);
  place(written + layout.coefficients, &burst.coefficients);
  place(written + layout.planes, &burst.samples);
  burst.num_blocks = planner.num_blocks;
  burst.num_images = static_cast<uint32_t>(planner.images.size());
  std::copy_n(kNaturalOrder.begin(), 64, burst.natural);
  burst.out = out;
  burst.output = planner.output;
  return burst;
}

}  // namespace headrace::gpu
