#include "core/pipeline/memory_budget.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/pipeline/pipeline.h"
#include "tests/pipeline/fake_client.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_dataset.h"

namespace headrace::testing {
namespace {

// A /proc and a /sys/fs/cgroup of its own.
class CgroupTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  std::optional<CgroupMemory> Read() { return ReadCgroupMemory(root_ + "/proc", root_ + "/sys"); }

  const TemporaryFolder folder_;
  const std::string root_ = folder_.path();
};

TEST_F(CgroupTest, NoGroupHasNoLimit) {
  EXPECT_FALSE(Read());
  Write("/proc/self/cgroup", "0::/a\n");
  Write("/sys/a/memory.max", "max\n");
  EXPECT_FALSE(Read());
}

TEST_F(CgroupTest, Version2CountsWhatCannotBeReclaimed) {
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/a/b/memory.max", "1000000\n");
  Write("/sys/a/b/memory.current", "700000\n");
  Write("/sys/a/b/memory.stat", "anon 100000\nfile 500000\nshmem 200000\n");
  ASSERT_TRUE(Read());
  EXPECT_EQ(Read()->limit_bytes, 1000000u);
  EXPECT_EQ(Read()->free_bytes, 600000u);  // of 700,000 used 300,000 are page cache
}

TEST_F(CgroupTest, TheTightestGroupUpToTheRootDecides) {
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/a/b/memory.max", "max\n");
  Write("/sys/a/memory.max", "5000\n");
  Write("/sys/a/memory.current", "6000\n");
  Write("/sys/memory.max", "9000\n");
  ASSERT_TRUE(Read());
  EXPECT_EQ(Read()->limit_bytes, 5000u);
  EXPECT_EQ(Read()->free_bytes, 0u);
  EXPECT_EQ(Read()->file, root_ + "/sys/a/memory.max");
}

TEST_F(CgroupTest, Version1IsReadToo) {
  Write("/proc/self/cgroup", "5:cpu:/x\n4:hugetlb,memory:/docker/1\n");
  Write("/sys/memory/docker/1/memory.limit_in_bytes", "2000\n");
  Write("/sys/memory/docker/1/memory.usage_in_bytes", "1500\n");
  Write("/sys/memory/docker/1/memory.stat", "cache 1\ntotal_cache 1000\ntotal_shmem 100\n");
  Write("/sys/memory/memory.limit_in_bytes", "9223372036854771712\n");
  ASSERT_TRUE(Read());
  EXPECT_EQ(Read()->free_bytes, 2000u - (1500 - 900));
}

TEST_F(CgroupTest, DamagedFilesAreNoLimit) {
  Write("/proc/self/cgroup", "nonsense\n::\n0::relative\n0::/a\n");
  Write("/sys/a/memory.max", "");
  EXPECT_FALSE(Read());
}

TEST(MemoryBudget, ReservesUpToItsLimit) {
  MemoryBudget budget(1000);
  EXPECT_TRUE(budget.Reserve(2, 300, 600).ok());
  EXPECT_EQ(budget.used_bytes(), 600u);
  const absl::Status status = budget.Reserve(2, 300, 600);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(budget.Reserve(1, 400, 400).ok());
  budget.Taken(500);
  budget.ReleaseSoon(600);
  budget.Released(600, 100);
  EXPECT_EQ(budget.used_bytes(), 400u);
  EXPECT_FALSE(budget.Reserve(1, 1 << 20, uint64_t{1} << 63).ok());
}

TEST(MemoryBudget, SaysWhatIsMissingAndWhatToChange) {
  const TinyDataset tiny;
  PipelineOptions options;
  options.host_memory_bytes = 2'000'000;
  const auto pipeline = Pipeline::Create(options);
  SessionSpec spec = TinySpec(tiny.Open(), 100);
  const auto first = pipeline->Open(spec, {}, nullptr);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = pipeline->Open(spec, {}, nullptr);
  ASSERT_EQ(second.status().code(), absl::StatusCode::kResourceExhausted);
  const std::string message(second.status().message());
  for (const char* part : {"4 slots of", "2.0 MB", "1 other session", "--host-memory", "batch_size", "prefetch_factor"}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  // A closed session's memory is there for the next one, even if it is given back only now.
  (*first)->Close(RingMemory::kDiscard);
  EXPECT_TRUE(pipeline->Open(spec, {}, nullptr).ok());
}

}  // namespace
}  // namespace headrace::testing
