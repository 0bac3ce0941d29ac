#include "packer/journal.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>

#include "tests/support/temporary_folder.h"

namespace headrace {
namespace {

using ::headrace::testing::TemporaryFolder;
using ::testing::HasSubstr;

JournalEntry Entry(uint64_t n) {
  return {{n + 1, 4096 * (n + 1), {static_cast<uint8_t>(n)}}, 10 * (n + 1), UINT64_MAX - n, 20 + n, n, 2 * n};
}

void Fill(const std::string& dir, uint64_t entries) {
  auto journal = Journal::Open(dir);
  ASSERT_TRUE(journal.ok()) << journal.status();
  ASSERT_TRUE((*journal)->Begin("{\"a\":1}").ok());
  for (uint64_t n = 0; n < entries; ++n) ASSERT_TRUE((*journal)->Append(Entry(n)).ok());
}

TEST(Journal, IsReadBack) {
  TemporaryFolder folder;
  Fill(folder.path(), 3);
  const auto journal = Journal::Open(folder.path());
  ASSERT_TRUE(journal.ok());
  EXPECT_EQ((*journal)->header(), "{\"a\":1}");
  ASSERT_EQ((*journal)->entries().size(), 3u);
  for (uint64_t n = 0; n < 3; ++n) {
    const JournalEntry& entry = (*journal)->entries()[n];
    EXPECT_EQ(entry.shard.samples, n + 1);
    EXPECT_EQ(entry.shard.lmdb_bytes, 4096 * (n + 1));
    EXPECT_EQ(entry.shard.lmdb_checksum, Entry(n).shard.lmdb_checksum);
    EXPECT_EQ(entry.items, 10 * (n + 1));
    EXPECT_EQ(entry.items_hash, UINT64_MAX - n);
    EXPECT_EQ(entry.report_bytes, 20 + n);
    EXPECT_EQ(entry.rejected, n);
    EXPECT_EQ(entry.skipped, 2 * n);
  }
}

TEST(Journal, BeginsAnewWithoutLosingItsFirstLineOnTheWay) {
  TemporaryFolder folder;
  Fill(folder.path(), 3);
  auto journal = Journal::Open(folder.path());
  ASSERT_TRUE(journal.ok());
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit none = {0, before.rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  const absl::Status refused = (*journal)->Begin("{}");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_DFL);
  EXPECT_FALSE(refused.ok());
  journal->reset();
  journal = Journal::Open(folder.path());
  ASSERT_TRUE(journal.ok());
  EXPECT_EQ((*journal)->header(), "{\"a\":1}");
  ASSERT_TRUE((*journal)->Begin("{}").ok());
  journal->reset();
  journal = Journal::Open(folder.path());
  ASSERT_TRUE(journal.ok());
  EXPECT_EQ((*journal)->header(), "{}");
  EXPECT_EQ((*journal)->entries().size(), 0u);
}

TEST(Journal, CutOffAnywhereItKeepsTheWholeLinesAndGoesOn) {
  TemporaryFolder folder;
  Fill(folder.path(), 2);
  const std::string whole = folder.Read(kJournalName);
  size_t before = 3;
  for (size_t length = whole.size() + 1; length-- > 0;) {
    folder.Write(kJournalName, whole.substr(0, length));
    auto journal = Journal::Open(folder.path());
    ASSERT_TRUE(journal.ok());
    const size_t lines = static_cast<size_t>(std::count(whole.begin(), whole.begin() + static_cast<long>(length), '\n'));
    EXPECT_EQ((*journal)->entries().size(), lines == 0 ? 0 : lines - 1) << length;
    EXPECT_EQ((*journal)->header().empty(), lines == 0) << length;
    if (lines != before && lines > 0) {
      ASSERT_TRUE((*journal)->Append(Entry(7)).ok());
      journal->reset();
      EXPECT_EQ((*Journal::Open(folder.path()))->entries().size(), lines) << length;
    }
    before = lines;
  }
}

TEST(Journal, AFlippedBitEndsIt) {
  TemporaryFolder folder;
  Fill(folder.path(), 3);
  const std::string whole = folder.Read(kJournalName);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    folder.Write(kJournalName, damaged);
    const auto journal = Journal::Open(folder.path());
    ASSERT_TRUE(journal.ok());
    EXPECT_LT((*journal)->entries().size(), 3u) << at;
  }
}

TEST(Journal, KeepsTheFirstEntries) {
  TemporaryFolder folder;
  Fill(folder.path(), 3);
  {
    auto journal = Journal::Open(folder.path());
    ASSERT_TRUE((*journal)->KeepEntries(1).ok());
    ASSERT_TRUE((*journal)->Append(Entry(9)).ok());
  }
  const auto journal = Journal::Open(folder.path());
  ASSERT_EQ((*journal)->entries().size(), 2u);
  EXPECT_EQ((*journal)->entries()[1].shard.samples, 10u);
}

TEST(Journal, OnlyOnePackerHoldsIt) {
  TemporaryFolder folder;
  auto first = Journal::Open(folder.path());
  ASSERT_TRUE(first.ok());
  const absl::Status second = Journal::Open(folder.path()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(second));
  EXPECT_THAT(second.ToString(), HasSubstr("another `headrace pack`"));
  first->reset();
  EXPECT_TRUE(Journal::Open(folder.path()).ok());
}

}  // namespace
}  // namespace headrace
