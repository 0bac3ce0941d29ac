#include "core/read/shard_map.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/tiny_dataset.h"

namespace headrace::testing {
namespace {

constexpr auto kNeverStop = [] { return false; };

TEST(ShardMapTest, FindsWhatIsPinnedAndNothingElse) {
  const TinyDataset tiny({.samples = 30});
  const auto dataset = tiny.Open();
  int pinned = 0;
  {
    const auto map = ShardMap::Create(dataset);
    ASSERT_TRUE(map.ok()) << map.status();
    ASSERT_EQ((*map)->num_parts(), dataset->num_shards()) << "small shards are one part each";
    const uint64_t bytes = dataset->shard_bytes(0);
    EXPECT_EQ((*map)->Find(0, 0, 1), nullptr);
    const uint8_t* from = nullptr;
    const auto pin = [&](const uint8_t* address, uint64_t size) -> absl::StatusOr<ShardMap::Pinned> {
      EXPECT_EQ(size, bytes);
      from = address;
      ++pinned;
      return ShardMap::Pinned(nullptr, [&](void*) { --pinned; });
    };
    EXPECT_TRUE(absl::IsCancelled((*map)->Add(0, pin, [] { return true; })));
    EXPECT_TRUE(absl::IsInternal((*map)->Add(0, [](const uint8_t*, uint64_t) { return absl::InternalError("no"); }, kNeverStop)));
    EXPECT_EQ((*map)->Find(0, 0, 1), nullptr);
    ASSERT_TRUE((*map)->Add(0, pin, kNeverStop).ok());
    EXPECT_EQ((*map)->pinned_bytes(), bytes);
    EXPECT_EQ((*map)->Find(0, 0, bytes), from);
    EXPECT_EQ((*map)->Find(0, bytes - 1, 1), from + bytes - 1);
    EXPECT_EQ((*map)->Find(0, bytes - 1, 2), nullptr);
    EXPECT_EQ((*map)->Find(0, bytes, 0), nullptr);
    EXPECT_EQ((*map)->Find(0, UINT64_MAX, 2), nullptr);
    EXPECT_EQ(pinned, 1);
  }
  EXPECT_EQ(pinned, 0);
}

TEST(ShardMapTest, AFileThatWasCutIsAnError) {
  const TinyDataset tiny({.samples = 30});
  const auto dataset = tiny.Open();
  const auto map = ShardMap::Create(dataset);
  ASSERT_TRUE(map.ok()) << map.status();
  std::filesystem::resize_file(dataset->shard_path(0), dataset->shard_bytes(0) / 2);
  const auto pin = [](const uint8_t*, uint64_t) -> absl::StatusOr<ShardMap::Pinned> {
    ADD_FAILURE() << "pinned";
    return absl::InternalError("");
  };
  const absl::Status status = (*map)->Add(0, pin, kNeverStop);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_NE(status.message().find("00000.lmdb"), std::string::npos) << status;
}

}  // namespace
}  // namespace headrace::testing
