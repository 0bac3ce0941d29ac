#include "core/read/sample_reader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/base/unique_fd.h"
#include "tests/read/small_dataset.h"
#include "tests/support/jpeg_maker.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;
using testing::SmallSample;

constexpr int kImage = 0, kName = 2;  // fields of a small dataset

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

// Seven samples in three shards.
class SampleReaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::path(::testing::TempDir()) /
           ("read_test_" + std::to_string(::getpid()) + "_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(dir_);
    std::mt19937 random(1);
    for (int i = 0; i < 7; ++i) {
      testing::JpegOptions options;
      options.width = 20 + i;
      options.height = 30;
      options.sampling = {"s444", {1, 1, 1}, {1, 1, 1}};
      samples_.push_back({MakeJpeg(options, &random), i % 3,
                          "class" + std::to_string(i % 3) + "/é" + std::to_string(i) + ".jpg"});
    }
    ASSERT_EQ(testing::WriteSmallDataset(dir_, samples_, 3), absl::OkStatus());
    const auto dataset = Dataset::Open(dir_);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    dataset_ = *dataset;
    verified_ = std::make_unique<VerifiedSamples>(dataset_->size());
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  SampleRow Row(uint64_t sample) const {
    SampleRow row;
    EXPECT_EQ(dataset_->ReadRow(sample, &row), absl::OkStatus());
    return row;
  }

  // Changes one byte in the middle of a value, behind the dataset's back.
  void Damage(const ValueLocation& location) const {
    const UniqueFd fd(::open(dataset_->shard_path(location.shard).c_str(), O_RDWR | O_CLOEXEC));
    const auto at = static_cast<off_t>(location.offset + location.length / 2);
    uint8_t byte = 0;
    ASSERT_EQ(::pread(fd.get(), &byte, 1, at), 1);
    byte ^= 0x10;
    ASSERT_EQ(::pwrite(fd.get(), &byte, 1, at), 1);
  }

  std::filesystem::path dir_;
  std::vector<SmallSample> samples_;
  std::shared_ptr<const Dataset> dataset_;
  std::unique_ptr<VerifiedSamples> verified_;
  SampleReader reader_;
};

TEST_F(SampleReaderTest, GivesEveryValueByteForByte) {
  ASSERT_EQ(dataset_->size(), samples_.size());
  ASSERT_EQ(dataset_->num_shards(), 3u);
  for (const Verify verify : {Verify::kEvery, Verify::kOnce, Verify::kOnce, Verify::kNever}) {
    for (uint64_t i = 0; i < samples_.size(); ++i) {
      const SampleRow row = Row(i);
      const auto image = reader_.Read(*dataset_, row, kImage, verify, verified_.get());
      ASSERT_TRUE(image.ok()) << image.status();
      EXPECT_TRUE(std::vector<uint8_t>(image->begin(), image->end()) == samples_[i].image);
      PrefetchValue(*dataset_, row.values[kImage].location);
      const auto name = reader_.Read(*dataset_, row, kName, verify, verified_.get());
      ASSERT_TRUE(name.ok()) << name.status();
      EXPECT_EQ(std::string(name->begin(), name->end()), samples_[i].name);
      EXPECT_EQ(*ReadName(*dataset_, row), samples_[i].name);
      EXPECT_EQ(row.values[1].i64, samples_[i].label);
    }
  }
}

TEST_F(SampleReaderTest, FindsAChangedByteAndNamesTheSample) {
  const SampleRow row = Row(4);
  Damage(row.values[kImage].location);
  const absl::Status status =
      reader_.Read(*dataset_, row, kImage, Verify::kOnce, verified_.get()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(MessageOf(status), HasSubstr("shard 1, sample 4, field image"));
  EXPECT_FALSE(verified_->Contains(4)) << "a wrong hash is not remembered as right";
  EXPECT_TRUE(reader_.Read(*dataset_, row, kImage, Verify::kNever, nullptr).ok());
}

TEST_F(SampleReaderTest, HashesOnceOrEveryTimeAsAsked) {
  const SampleRow row = Row(0);
  ASSERT_TRUE(reader_.Read(*dataset_, row, kImage, Verify::kOnce, verified_.get()).ok());
  EXPECT_TRUE(verified_->Contains(0));
  EXPECT_FALSE(verified_->Contains(1));
  Damage(row.values[kImage].location);
  EXPECT_TRUE(reader_.Read(*dataset_, row, kImage, Verify::kOnce, verified_.get()).ok());
  EXPECT_FALSE(reader_.Read(*dataset_, row, kImage, Verify::kEvery, verified_.get()).ok());
}

TEST_F(SampleReaderTest, ReadsARangeOnlyOfWhatNeedNotBeHashed) {
  const SampleRow row = Row(3);
  const uint64_t length = samples_[3].image.size();
  const auto expect_range = [&](uint64_t begin, uint64_t end, Verify verify, uint64_t bytes_read) {
    const auto range = reader_.ReadRange(*dataset_, row, kImage, begin, end, verify, verified_.get());
    ASSERT_TRUE(range.ok()) << range.status();
    const auto from = samples_[3].image.begin();
    const auto last = static_cast<ptrdiff_t>(std::min(end, length));
    EXPECT_TRUE(std::equal(range->begin(), range->end(), from + static_cast<ptrdiff_t>(begin), from + last));
    EXPECT_EQ(reader_.TakeBytesRead(), bytes_read);
  };
  expect_range(10, 50, Verify::kNever, 40);
  EXPECT_FALSE(verified_->Contains(3)) << "what was not hashed is not known to be right";
  expect_range(10, 50, Verify::kOnce, length);
  EXPECT_TRUE(verified_->Contains(3));
  expect_range(10, 50, Verify::kOnce, 40);
  expect_range(10, 50, Verify::kEvery, length);
  expect_range(100, length + 9, Verify::kNever, length - 100);
  expect_range(0, 0, Verify::kNever, 0);
}

TEST_F(SampleReaderTest, AnImageThatWasHashedDoesNotVouchForItsName) {
  const SampleRow row = Row(2);
  ASSERT_TRUE(reader_.Read(*dataset_, row, kImage, Verify::kOnce, verified_.get()).ok());
  Damage(row.values[kName].location);
  EXPECT_FALSE(reader_.Read(*dataset_, row, kName, Verify::kOnce, verified_.get()).ok());
  EXPECT_FALSE(ReadName(*dataset_, row).ok());
  EXPECT_EQ(DescribeSample(*dataset_, 2), "shard 0, sample 2")
      << "without a name that cannot be trusted";
}

TEST_F(SampleReaderTest, AFileCutOffWhileItIsOpenIsAStatus) {
  const SampleRow row = Row(6);
  std::filesystem::resize_file(dataset_->shard_path(2), row.values[kImage].location.offset + 10);
  const absl::Status status =
      reader_.Read(*dataset_, row, kImage, Verify::kNever, nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(MessageOf(status), HasSubstr("shard 2, sample 6, field image"));
  EXPECT_THAT(MessageOf(status), HasSubstr("00002.lmdb"));
}

TEST_F(SampleReaderTest, DescribesASampleByShardNumberAndName) {
  EXPECT_EQ(DescribeSample(*dataset_, 4), "shard 1, sample 4 (class1/é4.jpg)");
}

TEST(VerifiedSamples, KeepsSamplesApartAcrossThreads) {
  VerifiedSamples verified(1000);
  std::vector<std::thread> threads;
  for (uint64_t first = 0; first < 4; ++first) {
    threads.emplace_back([&verified, first] {
      for (uint64_t sample = first; sample < 1000; sample += 8) verified.Insert(sample);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint64_t sample = 0; sample < 1000; ++sample)
    EXPECT_EQ(verified.Contains(sample), sample % 8 < 4) << sample;
}

}  // namespace
}  // namespace headrace
