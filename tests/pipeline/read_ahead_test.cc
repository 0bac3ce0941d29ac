#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "core/pipeline/block_read_ahead.h"
#include "core/pipeline/page_cache.h"
#include "core/pipeline/pipeline.h"
#include "tests/pipeline/fake_client.h"
#include "tests/support/tiny_dataset.h"

namespace headrace::testing {
namespace {

constexpr uint64_t kWindow = EpochOrder::window_samples();

// And keeps the kernel from reading ahead by itself: what is cached afterwards, somebody asked for.
void DropFromPageCache(const Dataset& dataset) {
  for (uint32_t shard = 0; shard < dataset.num_shards(); ++shard) {
    ::fdatasync(dataset.shard_fd(shard));
    ::posix_fadvise(dataset.shard_fd(shard), 0, 0, POSIX_FADV_RANDOM);
    ::posix_fadvise(dataset.shard_fd(shard), 0, 0, POSIX_FADV_DONTNEED);
  }
}

bool IsSampleCached(const Dataset& dataset, uint64_t sample) {
  SampleRow row;
  EXPECT_TRUE(dataset.ReadRow(sample, &row).ok());
  return IsCached(dataset, row.values[static_cast<size_t>(dataset.FindField("image"))].location);
}

// Waits for the disk; a test that hangs here has found samples that nobody asked the disk for.
void WaitUntilCached(const Dataset& dataset, uint64_t sample) {
  while (!IsSampleCached(dataset, sample)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(ReadAhead, ReadsTheNextBatchesOfAFullRing) {
  const TinyDataset tiny({.samples = 400, .files = 40, .side_px = 100});
  const auto dataset = tiny.Open();
  DropFromPageCache(*dataset);
  PipelineOptions options;
  options.decode_threads = 2;
  options.host_memory_bytes = uint64_t{1} << 30;
  options.read_ahead_batches = 3;
  const auto pipeline = Pipeline::Create(options);
  const SessionSpec spec = TinySpec(dataset, 32);
  FakeClient client(pipeline.get(), spec);
  const EpochOrder order(400, spec.seed, 0, spec.shuffle);
  // Four slots and three batches more, of which nobody has taken any.
  for (uint64_t position = 0; position < 7 * 32; ++position) WaitUntilCached(*dataset, order.SampleAt(position));
}

TEST(ReadAhead, AnEmptyPartOfEveryEpochNeedsNothing) {
  const TinyDataset tiny({.samples = 3});
  PipelineOptions options;
  options.host_memory_bytes = uint64_t{1} << 30;
  const auto pipeline = Pipeline::Create(options);
  SessionSpec spec = TinySpec(tiny.Open(), 4);
  spec.rank = 7;
  spec.world_size = 8;
  FakeClient client(pipeline.get(), spec);
  for (int step = 0; step < 20; ++step) client.Release(*client.Next());
}

class BlockReadAheadTest : public ::testing::Test {
 protected:
  BlockReadAheadTest() : tiny_({.samples = kWindow + 1000, .files = 4, .classes = 0, .shard_bytes = 4 << 20}) {
    spec_ = TinySpec(tiny_.Open(), 100);
    spec_.shuffle = Shuffle::kBlocks;
  }
  TinyDataset tiny_;
  SessionSpec spec_;
};

TEST_F(BlockReadAheadTest, ReadsTheNextWindowAtThePaceOfThisOne) {
  const Dataset& dataset = *spec_.dataset;
  const EpochOrder order(dataset.size(), spec_.seed, 2, spec_.shuffle);
  DropFromPageCache(dataset);
  BlockReadAhead blocks;
  uint64_t calls = 0;
  for (uint64_t position = 0; position <= 900; position += 100) {
    while (blocks.Advance(spec_, {2, position}, order, 4)) ++calls;
  }
  EXPECT_GE(calls, 900 / kBlockSamples / 4 - 10);
  uint64_t unread = 0;
  for (uint64_t place = kWindow; place < kWindow + 900; ++place) {
    const uint64_t sample = order.StoredSampleAt(place), block = place / kBlockSamples * kBlockSamples;
    const uint64_t first = order.StoredSampleAt(block), last = order.StoredSampleAt(block + kBlockSamples - 1);
    if (last != first + kBlockSamples - 1 || dataset.Locate(first).first != dataset.Locate(last).first) {
      ++unread;  // the dataset's or a shard's end lies in it
    } else {
      WaitUntilCached(dataset, sample);
    }
  }
  EXPECT_LT(unread, 8 * kBlockSamples);
}

TEST_F(BlockReadAheadTest, PaysOnlyWhereAllRanksAreAndMemoryIsThere) {
  const uint64_t window_bytes = MeanSampleBytes(*spec_.dataset) * kWindow;
  EXPECT_TRUE(BlockReadAhead::Fits(spec_, 1, 4 * window_bytes));
  EXPECT_FALSE(BlockReadAhead::Fits(spec_, 1, 4 * window_bytes - 2));
  spec_.world_size = 2;
  EXPECT_FALSE(BlockReadAhead::Fits(spec_, 1, 4 * window_bytes));
  EXPECT_TRUE(BlockReadAhead::Fits(spec_, 2, 4 * window_bytes));
  spec_.shuffle = Shuffle::kGlobal;
  EXPECT_FALSE(BlockReadAhead::Fits(spec_, 2, 4 * window_bytes));
}

TEST(PageCache, HasSomeMemory) { EXPECT_GT(UsableMemoryBytes(), uint64_t{1} << 20); }

}  // namespace
}  // namespace headrace::testing
