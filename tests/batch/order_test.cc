#include "core/batch/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "core/batch/substitute.h"

namespace headrace {
namespace {

SessionSpec Spec(int batch, int rank, int world, LastBatch last) {
  SessionSpec spec;
  spec.batch_size = batch;
  spec.rank = rank;
  spec.world_size = world;
  spec.last_batch = last;
  return spec;
}

// The positions that all ranks take in the step at `cursor`, in rank order.
std::vector<uint64_t> GlobalStep(SessionSpec spec, uint64_t size, const Cursor& cursor) {
  std::vector<uint64_t> positions;
  for (spec.rank = 0; spec.rank < spec.world_size; ++spec.rank) {
    const StepRange range = StepAt(spec, size, cursor);
    EXPECT_LE(range.count, static_cast<uint32_t>(spec.batch_size));
    for (uint32_t i = 0; i < range.count; ++i) positions.push_back(range.first_position + i);
  }
  return positions;
}

// All steps of an epoch from `start` on.
std::vector<std::vector<uint64_t>> Epoch(const SessionSpec& spec, uint64_t size, Cursor start) {
  std::vector<std::vector<uint64_t>> steps;
  const uint64_t expected = StepsLeft(spec, size, start);
  for (Cursor cursor = start; StepsLeft(spec, size, cursor) > 0; cursor = StepAt(spec, size, cursor).next) {
    EXPECT_EQ(StepsLeft(spec, size, cursor), expected - steps.size());
    EXPECT_EQ(Normalized(spec, size, cursor), cursor);
    steps.push_back(GlobalStep(spec, size, cursor));
  }
  EXPECT_EQ(steps.size(), expected);
  return steps;
}

TEST(EpochOrder, GivesTheGoldenVectorsOfTheReference) {
  std::ifstream file(HEADRACE_GOLDEN_DIR "/order/order.json");
  const auto cases = nlohmann::json::parse(file);
  ASSERT_GT(cases.size(), 50u);
  for (const auto& golden : cases) {
    const uint64_t size = golden["size"], seed = golden["seed"], epoch = golden["epoch"];
    if (golden.contains("candidates")) {
      const SubstituteOrder order(size, seed, epoch, golden["position"]);
      for (size_t i = 0; i < golden["candidates"].size(); ++i) {
        EXPECT_EQ(order.Candidate(i), golden["candidates"][i].get<uint64_t>()) << golden;
      }
      continue;
    }
    const EpochOrder order(size, seed, epoch, golden["shuffle"] == "global" ? Shuffle::kGlobal : Shuffle::kBlocks);
    for (size_t i = 0; i < golden["positions"].size(); ++i) {
      EXPECT_EQ(order.SampleAt(golden["positions"][i]), golden["samples"][i].get<uint64_t>()) << golden;
    }
  }
}

TEST(EpochOrder, TakesEverySampleOnceHoweverItShuffles) {
  constexpr uint64_t kWindow = EpochOrder::window_samples();
  for (Shuffle shuffle : {Shuffle::kNone, Shuffle::kGlobal, Shuffle::kBlocks}) {
    for (uint64_t size : {uint64_t{1}, uint64_t{2}, uint64_t{15}, uint64_t{16}, uint64_t{17}, uint64_t{1000}, kWindow - 1,
                          kWindow, kWindow + 1, 2 * kWindow - 1, 2 * kWindow, 2 * kWindow + 45}) {
      const EpochOrder order(size, 9, 4, shuffle);
      std::vector<bool> seen(size), stored(size);
      for (uint64_t position = 0; position < size; ++position) {
        const uint64_t sample = order.SampleAt(position), other = order.StoredSampleAt(position);
        ASSERT_LT(sample, size);
        ASSERT_FALSE(seen[sample]);
        seen[sample] = true;
        ASSERT_FALSE(stored[other]);
        stored[other] = true;
      }
    }
  }
}

TEST(EpochOrder, IsTheIdentityWithoutShuffling) {
  const EpochOrder order(10, 1, 1, Shuffle::kNone);
  for (uint64_t position = 0; position < 25; ++position) EXPECT_EQ(order.SampleAt(position), position % 10);
}

TEST(EpochOrder, BlocksKeepEachWindowsSamplesTogether) {
  constexpr uint64_t kWindow = EpochOrder::window_samples(), kSize = 3 * kWindow + 77;
  const EpochOrder order(kSize, 2, 0, Shuffle::kBlocks);
  for (uint64_t window = 0; window < 3; ++window) {
    const uint64_t first = window * kWindow, last = window == 2 ? kSize : first + kWindow;
    std::vector<uint64_t> drawn, stored;
    for (uint64_t i = first; i < last; ++i) {
      drawn.push_back(order.SampleAt(i));
      stored.push_back(order.StoredSampleAt(i));
    }
    // Most stored places are followed by the next sample of the dataset: the disk sees runs of a block's length.
    uint64_t runs = 1;
    for (size_t i = 1; i < stored.size(); ++i) runs += stored[i] != stored[i - 1] + 1;
    EXPECT_LE(runs, stored.size() / kBlockSamples + 2);
    std::sort(drawn.begin(), drawn.end());
    std::sort(stored.begin(), stored.end());
    EXPECT_EQ(drawn, stored);
  }
}

// The number in docs/order.md: distinct classes in a batch of 256 of a dataset that is sorted by class, ImageNet's shape.
TEST(EpochOrder, BlocksMixSortedClassesAlmostLikeAGlobalShuffle) {
  constexpr uint64_t kSize = 1281167, kClasses = 1000, kBatch = 256;
  std::map<Shuffle, double> mean;
  for (Shuffle shuffle : {Shuffle::kGlobal, Shuffle::kBlocks}) {
    const EpochOrder order(kSize, 1, 0, shuffle);
    constexpr int kBatches = 200;
    for (int i = 0; i < kBatches; ++i) {
      std::set<uint64_t> classes;
      const uint64_t first = kSize / kBatches * static_cast<uint64_t>(i);
      for (uint64_t p = first; p < first + kBatch; ++p) classes.insert(order.SampleAt(p) * kClasses / kSize);
      mean[shuffle] += static_cast<double>(classes.size()) / kBatches;
    }
  }
  RecordProperty("distinct_classes_global", std::to_string(mean[Shuffle::kGlobal]));
  RecordProperty("distinct_classes_blocks", std::to_string(mean[Shuffle::kBlocks]));
  EXPECT_NEAR(mean[Shuffle::kGlobal], 226, 2);
  EXPECT_NEAR(mean[Shuffle::kBlocks], 204.7, 3);
}

TEST(Steps, PartialTakesEveryPositionOnce) {
  for (uint64_t size = 1; size <= 24; ++size) {
    for (int batch = 1; batch <= 6; ++batch) {
      for (int world = 1; world <= 5; ++world) {
        std::vector<uint64_t> all;
        const SessionSpec spec = Spec(batch, 0, world, LastBatch::kPartial);
        for (const auto& step : Epoch(spec, size, {0, 0})) all.insert(all.end(), step.begin(), step.end());
        std::vector<uint64_t> expected(size);
        for (uint64_t i = 0; i < size; ++i) expected[i] = i;
        EXPECT_EQ(all, expected) << size << " " << batch << " " << world;
      }
    }
  }
}

TEST(Steps, PartialSpreadsTheLastStepEvenly) {
  for (uint64_t size = 1; size <= 24; ++size) {
    for (int world = 1; world <= 5; ++world) {
      SessionSpec spec = Spec(6, 0, world, LastBatch::kPartial);
      Cursor cursor;
      while (StepsLeft(spec, size, cursor) > 1) cursor = StepAt(spec, size, cursor).next;
      uint32_t least = 6, most = 0;
      for (spec.rank = 0; spec.rank < world; ++spec.rank) {
        const uint32_t count = StepAt(spec, size, cursor).count;
        least = std::min(least, count);
        most = std::max(most, count);
      }
      EXPECT_LE(most - least, 1u);
    }
  }
}

// torch.utils.data.DistributedSampler with shuffle=False, drop_last=False: it pads the list of indices by its own beginning
// until W divides it; rank r takes every W-th from r, B at a time. Ours has the same multiset in every global step.
TEST(Steps, PadTakesTheSamplesOfDistributedSampler) {
  for (uint64_t size = 1; size <= 24; ++size) {
    for (uint64_t batch = 1; batch <= 6; ++batch) {
      for (uint64_t world = 1; world <= 5; ++world) {
        const uint64_t total = (size + world - 1) / world * world;
        std::vector<std::multiset<uint64_t>> expected((total / world + batch - 1) / batch);
        for (uint64_t i = 0; i < total; ++i) expected[i / world / batch].insert(i % size);
        const EpochOrder order(size, 0, 0, Shuffle::kNone);
        std::vector<std::multiset<uint64_t>> ours;
        const SessionSpec spec = Spec(static_cast<int>(batch), 0, static_cast<int>(world), LastBatch::kPad);
        for (const auto& step : Epoch(spec, size, {0, 0})) {
          ours.emplace_back();
          for (uint64_t position : step) ours.back().insert(order.SampleAt(position));
        }
        EXPECT_EQ(ours, expected) << size << " " << batch << " " << world;
      }
    }
  }
}

TEST(Steps, PadGivesEveryRankTheSameCountAndNewPositions) {
  for (uint64_t size = 1; size <= 24; ++size) {
    for (int world = 1; world <= 5; ++world) {
      for (const auto& step : Epoch(Spec(3, 0, world, LastBatch::kPad), size, {0, 0})) {
        EXPECT_EQ(step.size() % static_cast<size_t>(world), 0u);
        EXPECT_EQ(std::set<uint64_t>(step.begin(), step.end()).size(), step.size());
      }
    }
  }
}

TEST(Steps, DropTakesOnlyWholeSteps) {
  for (uint64_t size = 0; size <= 24; ++size) {
    for (int batch = 1; batch <= 6; ++batch) {
      for (int world = 1; world <= 5; ++world) {
        const SessionSpec spec = Spec(batch, 0, world, LastBatch::kDrop);
        const uint64_t global = static_cast<uint64_t>(batch * world);
        const auto steps = Epoch(spec, size, {3, 0});
        EXPECT_EQ(steps.size(), size / global);
        for (size_t s = 0; s < steps.size(); ++s) {
          ASSERT_EQ(steps[s].size(), global);
          for (uint64_t i = 0; i < global; ++i) EXPECT_EQ(steps[s][i], s * global + i);
        }
      }
    }
  }
}

TEST(Steps, AnEpochEndsAtItsSizeAndTheNextBeginsAtZero) {
  for (LastBatch last : {LastBatch::kPartial, LastBatch::kPad, LastBatch::kDrop}) {
    for (uint64_t size = 12; size <= 24; ++size) {
      const SessionSpec spec = Spec(3, 1, 4, last);
      Cursor cursor{5, 0};
      while (StepsLeft(spec, size, cursor) > 0) cursor = StepAt(spec, size, cursor).next;
      EXPECT_EQ(cursor, (Cursor{5, size}));
      EXPECT_EQ(Normalized(spec, size, cursor), (Cursor{6, 0}));
      EXPECT_EQ(Normalized(spec, size, {5, size + 100}), (Cursor{6, 0}));
    }
  }
}

// Stop after any number of steps and go on with another world size: the positions that follow are the same sequence.
TEST(Steps, ResumeOnAnyWorldSizeGoesOnWithTheSameSequence) {
  constexpr uint64_t kSize = 61;
  for (LastBatch last : {LastBatch::kPartial, LastBatch::kPad}) {
    for (int world = 1; world <= 5; ++world) {
      const SessionSpec before = Spec(3, 0, world, last);
      for (Cursor cursor; StepsLeft(before, kSize, cursor) > 0; cursor = StepAt(before, kSize, cursor).next) {
        for (int other = 1; other <= 5; ++other) {
          std::vector<uint64_t> rest;
          for (const auto& step : Epoch(Spec(4, 0, other, last), kSize, cursor)) {
            rest.insert(rest.end(), step.begin(), step.end());
          }
          ASSERT_GE(rest.size(), kSize - cursor.position);
          for (size_t i = 0; i < rest.size(); ++i) EXPECT_EQ(rest[i], cursor.position + i);
          EXPECT_LT(rest.size() - (kSize - cursor.position), static_cast<size_t>(other));
        }
      }
    }
  }
}

TEST(SubstituteOrder, TriesEverySampleOnce) {
  for (uint64_t size : {1, 2, 10, 257}) {
    const SubstituteOrder order(size, 1, 2, 3);
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < size; ++i) seen.insert(order.Candidate(i));
    EXPECT_EQ(seen.size(), size);
    EXPECT_EQ(*seen.rbegin(), size - 1);
  }
}

}  // namespace
}  // namespace headrace
