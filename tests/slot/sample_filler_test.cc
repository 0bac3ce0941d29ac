#include "core/slot/sample_filler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "tests/support/tiny_dataset.h"

namespace headrace {
namespace {

class SampleFillerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dataset_ = tiny_.Open();
    spec_.dataset = dataset_;
    spec_.batch_size = 1;
    spec_.seed = 3;
    spec_.recipe.transforms = {RandomResizedCrop{.height = 24, .width = 40}, RandomHorizontalFlip{}};
    spec_.recipe.normalize = Normalize{};
    layout_ = *MakeBatchLayout(spec_);
    texts_.values.resize(layout_.fields.size());
  }

  // The image of `sample` as it lies in a slot.
  absl::StatusOr<std::vector<uint8_t>> Fill(uint64_t sample, uint64_t position, Verify verify) {
    std::vector<uint8_t> slot(layout_.slot_bytes, 0xA5);
    HEADRACE_RETURN_IF_ERROR(
        filler_.Fill(spec_, layout_, sample, {slot.data(), 0, 1, position, &texts_}, verify, &verified_));
    slot.resize(SampleBytes(layout_.fields[0]));
    return slot;
  }

  // The same through the image's library, from the whole file.
  std::vector<uint8_t> Expected(uint64_t sample, uint64_t position) {
    SampleRow row;
    EXPECT_TRUE(dataset_->ReadRow(sample, &row).ok());
    SampleReader reader;
    const auto bytes = reader.Read(*dataset_, row, dataset_->FindField("image"), Verify::kNever, nullptr);
    EXPECT_TRUE(bytes.ok());
    Draw draw;
    DrawSample(spec_.recipe, spec_.seed, 1, position, static_cast<int>(row.image.oriented_width()),
               static_cast<int>(row.image.oriented_height()), &draw);
    std::vector<uint8_t> out(SampleBytes(layout_.fields[0]));
    EXPECT_TRUE(SampleRenderer().Render(*bytes, row.image, spec_.recipe, draw, out.data(), nullptr).ok());
    return out;
  }

  uint64_t ImageBytes(uint64_t sample) const {
    SampleRow row;
    EXPECT_TRUE(dataset_->ReadRow(sample, &row).ok());
    return row.values[static_cast<size_t>(dataset_->FindField("image"))].location.length;
  }

  const testing::TinyDataset tiny_{{.samples = 20, .files = 20, .side_px = 200}};
  std::shared_ptr<const Dataset> dataset_;
  SessionSpec spec_;
  BatchLayout layout_;
  BatchTexts texts_;
  VerifiedSamples verified_{20};
  SampleFiller filler_;
};

TEST_F(SampleFillerTest, ReadsAnImageWholeOnceAndThenOnlyWhatItsPixelsNeed) {
  uint64_t whole = 0, part = 0;
  for (uint64_t sample = 0; sample < 20; ++sample) {
    const uint64_t image_bytes = ImageBytes(sample);
    for (uint64_t position = 0; position < 8; ++position) {
      const auto image = Fill(sample, position, Verify::kOnce);
      ASSERT_TRUE(image.ok()) << image.status();
      ASSERT_EQ(*image, Expected(sample, position)) << "sample " << sample << ", position " << position;
      const uint64_t read = filler_.TakeBytesRead();
      if (position == 0) {
        EXPECT_EQ(read, image_bytes) << "the hash is that of the whole image";
      } else {
        EXPECT_LE(read, image_bytes);
        part += read;
        whole += image_bytes;
      }
    }
  }
  EXPECT_LT(part, whole * 9 / 10);
}

TEST_F(SampleFillerTest, HashesTheWholeImageEachTimeOrNeverAsAsked) {
  const uint64_t image_bytes = ImageBytes(2);
  uint64_t least = image_bytes;
  for (uint64_t position = 0; position < 8; ++position) {
    ASSERT_TRUE(Fill(2, position, Verify::kEvery).ok());
    EXPECT_EQ(filler_.TakeBytesRead(), image_bytes);
    ASSERT_TRUE(Fill(2, position, Verify::kNever).ok());
    least = std::min(least, filler_.TakeBytesRead());
  }
  EXPECT_LT(least, image_bytes);
}

TEST_F(SampleFillerTest, ADamagedImageIsABadSampleWhenItIsHashed) {
  tiny_.Damage(4);
  EXPECT_EQ(Fill(4, 0, Verify::kOnce).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Fill(4, 0, Verify::kEvery).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(Fill(5, 0, Verify::kOnce).ok());
}

TEST_F(SampleFillerTest, AKnownBadImageIsNotReadAndTheErrorIsTheSame) {
  tiny_.Damage(4);
  spec_.known_bad = std::make_shared<KnownBad>(dataset_, "");
  const absl::Status first = Fill(4, 0, Verify::kOnce).status();
  EXPECT_GT(filler_.TakeBytesRead(), 0u);
  for (uint64_t position = 0; position < 8; ++position) {
    const absl::Status again = Fill(4, position, Verify::kOnce).status();
    EXPECT_EQ(MakeBadSample(*dataset_, 4, 0, again).Message(), MakeBadSample(*dataset_, 4, 0, first).Message());
    EXPECT_EQ(filler_.TakeBytesRead(), 0u);
  }
  spec_.known_bad = std::make_shared<KnownBad>(dataset_, "");  // a later run
  EXPECT_FALSE(Fill(4, 0, Verify::kOnce).ok());
  EXPECT_EQ(filler_.TakeBytesRead(), 0u);
  (void)Fill(4, 0, Verify::kNever);
  EXPECT_GT(filler_.TakeBytesRead(), 0u) << "unchecked bytes are decoded to whatever they give";
  EXPECT_TRUE(Fill(5, 0, Verify::kOnce).ok());
}

TEST_F(SampleFillerTest, WhatIsNoFaultOfTheImageIsNotRemembered) {
  spec_.known_bad = std::make_shared<KnownBad>(dataset_, "");
  spec_.recipe.transforms = {RandomCrop{.height = 5000, .width = 5000}};
  EXPECT_FALSE(Fill(4, 0, Verify::kOnce).ok()) << "too small for this recipe";
  spec_.recipe.transforms = {RandomResizedCrop{.height = 24, .width = 40}};
  const std::string shard = dataset_->shard_path(dataset_->Locate(4).first);
  const auto bytes = std::filesystem::file_size(shard);
  std::filesystem::resize_file(shard, 0);
  EXPECT_EQ(Fill(4, 0, Verify::kOnce).status().code(), absl::StatusCode::kDataLoss) << "gone for now";
  std::filesystem::resize_file(shard, bytes);
  EXPECT_TRUE(spec_.known_bad->entries().empty());
}

}  // namespace
}  // namespace headrace
