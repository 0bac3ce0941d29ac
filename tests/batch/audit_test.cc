#include "core/batch/audit.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/augment/draw.h"
#include "core/batch/order.h"
#include "tests/support/tiny_dataset.h"

namespace headrace {
namespace {

SessionSpec Spec(const testing::TinyDataset& tiny) {
  SessionSpec spec;
  spec.dataset = tiny.Open();
  spec.batch_size = 6;
  spec.shuffle = Shuffle::kGlobal;
  spec.seed = 11;
  RandomResizedCrop crop;
  crop.height = crop.width = 16;
  spec.recipe.transforms = {crop, RandomHorizontalFlip{}};
  return spec;
}

TEST(AuditStep, NamesEverySampleAndWhatIsDrawnForIt) {
  const testing::TinyDataset tiny({.samples = 50});
  SessionSpec spec = Spec(tiny);
  spec.world_size = 2;
  spec.rank = 1;
  const EpochOrder order(50, spec.seed, 3, spec.shuffle);
  bool flipped = false, straight = false, turned = false;
  // From the middle of an epoch on, as after a resume: 5, then four steps of 12 positions, the last with what is left.
  for (uint64_t step = 0; step < 4; ++step) {
    const auto audit = AuditStep(spec, {3, 5}, step);
    ASSERT_TRUE(audit.ok()) << audit.status();
    const auto entries = nlohmann::json::parse(*audit);
    const uint64_t first = 5 + 12 * step + (step < 3 ? 6 : 5), count = step < 3 ? 6 : 4;
    ASSERT_EQ(entries.size(), count);
    for (uint64_t i = 0; i < count; ++i) {
      const auto& entry = entries[i];
      const uint64_t sample = order.SampleAt(first + i);
      EXPECT_EQ(entry["sample"], sample);
      EXPECT_EQ(entry["label"], sample % 5);
      EXPECT_EQ(entry["name"], std::to_string(sample % 20) + ".jpg");
      EXPECT_EQ(entry["shard"], spec.dataset->Locate(sample).first);
      SampleRow row;
      ASSERT_TRUE(spec.dataset->ReadRow(sample, &row).ok());
      Draw draw;
      DrawSample(spec.recipe, spec.seed, 3, first + i, static_cast<int>(row.image.oriented_width()),
                 static_cast<int>(row.image.oriented_height()), &draw);
      EXPECT_EQ(entry["crop"], (nlohmann::json{draw.crop.top, draw.crop.left, draw.crop.height, draw.crop.width}));
      EXPECT_EQ(entry["flip"], draw.flip);
      EXPECT_FALSE(entry.contains("vflip"));
      flipped |= draw.flip;
      straight |= !draw.flip;
      turned |= row.image.swaps_axes();
    }
  }
  EXPECT_TRUE(flipped && straight && turned);
}

TEST(AuditStep, PaddedPlacesAreDrawnAnew) {
  const testing::TinyDataset tiny({.samples = 7, .classes = 0});
  SessionSpec spec = Spec(tiny);
  spec.fields = {"image"};
  spec.world_size = 2;
  spec.rank = 1;
  spec.last_batch = LastBatch::kPad;
  const auto audit = AuditStep(spec, {0, 0}, 0);
  ASSERT_TRUE(audit.ok()) << audit.status();
  const auto entries = nlohmann::json::parse(*audit);
  ASSERT_EQ(entries.size(), 4u);  // positions 4 … 7; 7 is sample 0's second time
  const EpochOrder order(7, spec.seed, 0, spec.shuffle);
  EXPECT_EQ(entries[3]["sample"], order.SampleAt(0));
  EXPECT_FALSE(entries[0].contains("label"));
  spec.rank = 0;
  const auto first = nlohmann::json::parse(*AuditStep(spec, {0, 0}, 0));
  EXPECT_EQ(first[0]["sample"], entries[3]["sample"]);
  EXPECT_NE(first[0]["crop"], entries[3]["crop"]);
}

TEST(AuditStep, AStepBehindTheEpochIsOutOfRange) {
  const testing::TinyDataset tiny({.samples = 50});
  const SessionSpec spec = Spec(tiny);
  EXPECT_TRUE(AuditStep(spec, {0, 0}, 8).ok());
  EXPECT_EQ(AuditStep(spec, {0, 0}, 9).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(AuditStep(spec, {0, 50}, 0).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(AuditStep(spec, {0, 0}, ~uint64_t{0}).status().code(), absl::StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace headrace
