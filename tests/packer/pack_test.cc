// Packing, verifying and rebuilding within one process. Kills and the command line: tests/python/test_pack.py.
#include "packer/pack.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <map>
#include <random>
#include <thread>

#include "core/shard/dataset.h"
#include "core/shard/format.h"
#include "core/shard/manifest.h"
#include "packer/journal.h"
#include "packer/rebuild_index.h"
#include "packer/verify.h"
#include "tests/packer/pack_fixture.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;
using ::headrace::testing::PackTest;
using ::testing::HasSubstr;

TEST_F(PackTest, ADatasetIsPackedOpenedAndVerified) {
  const auto summary = Run();
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->samples, 120u);
  EXPECT_EQ(summary->classes, 3u);
  EXPECT_EQ(summary->rejected, 1u);
  EXPECT_GT(summary->shards, 2u);
  const auto dataset = Dataset::Open(options_.destination);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 120u);
  EXPECT_EQ((*dataset)->hash(), summary->hash);
  EXPECT_THAT(folder_.Read("made/below/dst/report.csv"),
              HasSubstr("\nclass1/notes.txt,rejected,no image: starts with 0x6e 0x6f 0x20 0x69\n"));
  std::vector<std::string> found;
  const VerifySummary verified = Verify(&found);
  EXPECT_EQ(verified.bad_shards + verified.bad_samples, 0u) << found[0];
}

TEST_F(PackTest, TheNumberOfThreadsChangesNoByte) {
  ASSERT_TRUE(Run().ok());
  const auto one = Files("made/below/dst");
  options_.threads = 9;
  options_.destination = folder_.File("other");
  ASSERT_TRUE(Run().ok());
  EXPECT_TRUE(one == Files("other"));
}

TEST_F(PackTest, RebuiltIndexesAreTheSameBytes) {
  options_.check = true;
  ASSERT_TRUE(Run().ok());
  const auto before = Files("made/below/dst");
  for (const auto& [name, bytes] : before) {
    if (name.ends_with(".index")) fs::remove(options_.destination + "/" + name);
  }
  RebuildProgress progress;
  const absl::Status status = RebuildIndex(options_.destination, 2, -1, &progress);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(before == Files("made/below/dst"));
}

TEST_F(PackTest, ADamagedShardIsNotIndexed) {
  ASSERT_TRUE(Run().ok());
  std::string bytes = folder_.Read("made/below/dst/00001.lmdb");
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  folder_.Write("made/below/dst/00001.lmdb", bytes);
  RebuildProgress progress;
  const absl::Status status = RebuildIndex(options_.destination, 2, -1, &progress);
  EXPECT_THAT(status.ToString(), HasSubstr("00001.lmdb does not match its checksum"));
}

TEST_F(PackTest, StoppedAtAnyMomentItGoesOnAndGivesTheSameBytes) {
  ASSERT_TRUE(Run().ok());
  const auto whole = Files("made/below/dst");
  options_.destination = folder_.File("resumed");
  int stops = 0;
  std::mt19937 random(3);
  while (true) {
    PackProgress progress;
    const uint64_t stop_at = random() % 60;  // files of this run
    std::atomic<bool> ended = false;
    std::thread stopper([&] {
      uint64_t first = UINT64_MAX;
      while (!ended) {
        if (progress.phase == PackProgress::Phase::kPacking && first == UINT64_MAX) first = progress.files_done;
        if (first != UINT64_MAX && progress.files_done >= first + stop_at) progress.stop = true;
        std::this_thread::yield();
      }
    });
    const auto summary = Pack(options_, &progress);
    ended = true;
    stopper.join();
    if (summary.ok()) break;
    ASSERT_TRUE(absl::IsCancelled(summary.status())) << summary.status();
    EXPECT_TRUE(absl::IsNotFound(Dataset::Open(options_.destination).status())) << "a half-made dataset opened";
    ASSERT_LT(++stops, 1000);
  }
  EXPECT_TRUE(whole == Files("resumed"));
}

TEST_F(PackTest, AFinishedDatasetIsNotReplacedUnlessAsked) {
  ASSERT_TRUE(Run().ok());
  const auto before = Files("made/below/dst");
  const absl::Status status = Run().status();
  EXPECT_TRUE(absl::IsAlreadyExists(status));
  EXPECT_THAT(status.ToString(), HasSubstr("--overwrite"));
  EXPECT_TRUE(before == Files("made/below/dst"));
  folder_.Write("made/below/dst/mine.txt", "stays");
  fs::remove(folder_.File("src/class0/0.jpg"));
  options_.overwrite = true;
  const auto again = Run();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->samples, 119u);
  EXPECT_EQ(folder_.Read("made/below/dst/mine.txt"), "stays");
}

// Packs until the first shards are finished, then stops.
class ResumeTest : public PackTest {
 protected:
  void SetUp() override {
    PackTest::SetUp();
    options_.strict = true;  // ends without dataset.json, with all shards in the journal
    const absl::Status status = Run().status();
    ASSERT_TRUE(absl::IsFailedPrecondition(status)) << status;
    ASSERT_THAT(status.ToString(), HasSubstr("1 files rejected"));
    options_.strict = false;
  }
};

TEST_F(ResumeTest, WithoutStrictTheSameCallCompletesIt) {
  const auto summary = Run();
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->samples_kept, 120u);
  EXPECT_FALSE(fs::exists(options_.destination + "/pack.journal"));
}

TEST_F(ResumeTest, ChangedOptionsAreNoticed) {
  options_.shard_bytes = 200000;
  const absl::Status status = Run().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(status.ToString(), HasSubstr("shard size 100000 → 200000"));
  options_.shard_bytes = 100000;
  options_.entry_interval = 4;
  EXPECT_THAT(Run().status().ToString(), HasSubstr("entry interval 8 → 4"));
  options_.entry_interval = 8;
  options_.keep_bytes = true;
  EXPECT_THAT(Run().status().ToString(), HasSubstr("keep bytes false → true"));
}

TEST_F(ResumeTest, ChangedFilesAreNoticed) {
  const fs::path file = folder_.File("src/class0/3.jpg");
  const auto time = fs::last_write_time(file);
  fs::last_write_time(file, time + std::chrono::seconds(1));
  EXPECT_THAT(Run().status().ToString(), HasSubstr("added, removed or changed"));
  fs::last_write_time(file, time);
  folder_.Write("src/class0/00.jpg", "new");
  EXPECT_THAT(Run().status().ToString(), HasSubstr("added, removed or changed"));
  fs::remove(folder_.File("src/class0/00.jpg"));
  EXPECT_TRUE(Run().ok());
}

TEST_F(ResumeTest, ANewClassIsNoticed) {
  fs::create_directory(folder_.File("src/class00"));
  EXPECT_THAT(Run().status().ToString(), HasSubstr("classes 3 → 4"));
}

TEST_F(ResumeTest, AFinishedShardThatWasDamagedIsPackedAgain) {
  for (const char* name : {"00001.lmdb", "00001.index"}) {
    const std::string path = std::string("made/below/dst/") + name;
    std::string bytes = folder_.Read(path);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    folder_.Write(path, bytes);
    options_.strict = true;
    EXPECT_TRUE(absl::IsFailedPrecondition(Run().status()));
  }
  options_.strict = false;
  const auto summary = Run();
  ASSERT_TRUE(summary.ok()) << summary.status();
  std::vector<std::string> found;
  const VerifySummary verified = Verify(&found);
  EXPECT_EQ(verified.bad_shards + verified.bad_samples, 0u);
}

TEST_F(ResumeTest, OverwriteBeginsAnew) {
  options_.shard_bytes = 200000;
  options_.overwrite = true;
  const auto summary = Run();
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->samples_kept, 0u);
}

TEST_F(PackTest, AKillWhileOverwriteRemovesTheShardsLeavesSomethingToGoOnFrom) {
  ASSERT_TRUE(Run().ok());
  fs::remove(options_.destination + "/dataset.json");
  for (int i = 0; i < 2; ++i) {  // not by --overwrite: whose shards these are is not known
    const auto refused = Run();
    EXPECT_TRUE(absl::IsFailedPrecondition(refused.status())) << refused.status();
  }
  auto journal = Journal::Open(options_.destination);
  ASSERT_TRUE(journal.ok() && (*journal)->Begin("{}").ok());
  journal->reset();
  const auto summary = Run();
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->samples_kept, 0u);
  EXPECT_FALSE(fs::exists(options_.destination + "/pack.journal"));
}

TEST_F(PackTest, AKillBehindTheLastStepLeavesNothingToDo) {
  options_.strict = true;
  ASSERT_FALSE(Run().ok());
  const std::string journal = folder_.Read("made/below/dst/pack.journal");
  options_.strict = false;
  ASSERT_TRUE(Run().ok());
  folder_.Write("made/below/dst/pack.journal", journal);  // as if it had not been removed yet
  const auto summary = Run();
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_TRUE(summary->was_complete);
  EXPECT_FALSE(fs::exists(options_.destination + "/pack.journal"));
}

TEST_F(PackTest, ASourceWithoutImagesIsAnError) {
  folder_.Write("texts/a.txt", "a");
  options_.source = folder_.File("texts");
  EXPECT_THAT(Run().status().ToString(), HasSubstr("no readable image"));
  EXPECT_FALSE(fs::exists(options_.destination + "/dataset.json"));
}

TEST_F(PackTest, EachDamagedSampleIsNamed) {
  ASSERT_TRUE(Run().ok());
  std::vector<std::string> found;
  ASSERT_EQ(Verify(&found).bad_samples, 0u);
  const auto dataset = Dataset::Open(options_.destination);
  SampleRow row;
  const std::vector<uint64_t> damaged = {0, 41, 119};
  for (uint64_t sample : damaged) {
    ASSERT_TRUE((*dataset)->ReadRow(sample, &row).ok());
    std::fstream file((*dataset)->shard_path(row.values[0].location.shard), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(row.values[0].location.offset + 20));
    file.put('\x55');
  }
  found.clear();
  const VerifySummary summary = Verify(&found);
  EXPECT_EQ(summary.bad_samples, 3u);
  EXPECT_GE(summary.bad_shards, 1u);
  ASSERT_EQ(found.size(), summary.bad_shards + 3);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_THAT(found[found.size() - 3 + i], HasSubstr("sample " + std::to_string(damaged[i]) + " (class"));
    EXPECT_THAT(found[found.size() - 3 + i], HasSubstr("hash"));
  }
}

TEST_F(PackTest, AnIndexThatContradictsLmdbIsFound) {
  ASSERT_TRUE(Run().ok());
  // The index of a shard in which two labels are exchanged, with right checksums.
  std::string index = folder_.Read("made/below/dst/00000.index");
  const std::string right = index;
  const RowLayout layout = MakeRowLayout({{"image", FieldKind::kImage, 0}, {"label", FieldKind::kInt64, 0},
                                          {"name", FieldKind::kText, 0}});
  auto* row = reinterpret_cast<uint8_t*>(index.data()) + 128 + 64 * 3;
  row[layout.offsets[1]] ^= 1;
  SealRow(layout, row);
  folder_.Write("made/below/dst/00000.index", index);
  std::vector<std::string> found;
  EXPECT_EQ(Verify(&found).bad_shards, 1u);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0], HasSubstr("sample 0: LMDB and index differ in field `label`"));
}

}  // namespace
}  // namespace headrace
