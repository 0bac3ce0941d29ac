// An LMDB file whose pages are anything, with checksums that are right: what reads it all ends with a status that names it.
#include <gmock/gmock.h>

#include <array>
#include <fstream>
#include <random>

#include "core/base/file.h"
#include "core/shard/manifest.h"
#include "packer/rebuild_index.h"
#include "packer/unpack.h"
#include "packer/verify.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_dataset.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr size_t kPageBytes = 4096;

// Mostly where LMDB's own numbers lie: at a page's front, in a node, in a number that is one already.
void Damage(std::mt19937* random, std::string* shard) {
  const auto below = [random](size_t bound) { return (*random)() % bound; };
  const size_t page = below(shard->size() / kPageBytes) * kPageBytes;
  size_t place = page + below(std::array<size_t, 4>{32, 160, kPageBytes, 16}[below(4)]);
  switch (below(5)) {
    case 0: (*shard)[place] = static_cast<char>((*shard)[place] ^ (1 << below(8))); break;
    case 1: (*shard)[place] = static_cast<char>(below(256)); break;
    case 2: (*shard)[place & ~size_t{1}] = static_cast<char>((*shard)[place & ~size_t{1}] + 2 * below(8) - 8); break;
    case 3: shard->replace(place, std::min<size_t>(8, shard->size() - place), 8, below(2) == 0 ? '\xFF' : '\0'); break;
    default: shard->replace(page, kPageBytes, shard->substr(below(shard->size() / kPageBytes) * kPageBytes, kPageBytes));
  }
  if (below(50) == 0) shard->resize(below(shard->size()) + 1);
}

TEST(HostileShard, EndsNoCommandAndIsNamed) {
  const testing::TinyDataset tiny({.samples = 150, .files = 9, .side_px = 12, .columns = true, .shard_bytes = 1 << 20});
  const std::string& dir = tiny.dir();
  const std::string whole = *ReadFile(ShardLmdbPath(dir, 0), 1 << 24);
  ASSERT_EQ(tiny.Open()->num_shards(), 1u);
  std::mt19937 random(7);
  int refused = 0, read = 0;
  for (int round = 0; round < 800 / TEST_SLOWDOWN; ++round) {
    const std::string index = *ReadFile(ShardIndexPath(dir, 0), 1 << 24);
    std::string shard = whole;
    for (uint32_t changes = 1 + random() % 3; changes > 0; --changes) Damage(&random, &shard);
    tiny.ReplaceShard(shard);
    std::vector<std::string> found;
    VerifyProgress verify;
    const auto verified = VerifyDataset({.dataset = dir, .threads = 1, .decode = false}, &verify,
                                        [&](bool is_bad, const std::string& what) { if (is_bad) found.push_back(what); });
    ASSERT_TRUE(verified.ok()) << verified.status();  // of the index, which is whole
    for (const std::string& what : found) EXPECT_THAT(what, StartsWith("shard 0"));
    RebuildProgress rebuild;
    const absl::Status rebuilt = RebuildIndex(dir, 1, -1, &rebuild);
    if (!rebuilt.ok()) {
      EXPECT_THAT(std::string(rebuilt.message()), HasSubstr("00000.lmdb"));
      EXPECT_FALSE(found.empty()) << rebuilt;
    }
    ++(rebuilt.ok() ? read : refused);
    if (round % 20 == 0) {
      const testing::TemporaryFolder out;
      UnpackProgress unpack;
      const auto none = [](const std::string&) {};
      EXPECT_TRUE(UnpackDataset(dir, out.File("unpacked"), &unpack, none, none).ok());
    }
    std::ofstream(ShardIndexPath(dir, 0), std::ios::binary).write(index.data(), static_cast<std::streamsize>(index.size()));
  }
  EXPECT_GT(refused, 400 / TEST_SLOWDOWN);
  EXPECT_GT(read, 40 / TEST_SLOWDOWN);
}

}  // namespace
}  // namespace headrace
