#include "core/shard/dataset.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "core/base/file.h"
#include "tests/shard/small_shards.h"
#include "tests/support/temporary_folder.h"

namespace headrace {
namespace {

using ::headrace::testing::ImageOf;
using ::headrace::testing::LabelOf;
using ::headrace::testing::NameOf;
using ::headrace::testing::ScoreOf;
using ::headrace::testing::TemporaryFolder;
using ::headrace::testing::WriteDataset;
using ::testing::HasSubstr;

std::string ReadValue(const Dataset& dataset, const ValueLocation& location) {
  std::string bytes(location.length, '\0');
  EXPECT_TRUE(ReadAt(dataset.shard_fd(location.shard), bytes.data(), bytes.size(), location.offset, "shard").ok());
  return bytes;
}

void FlipByte(const std::string& path, uint64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const char byte = static_cast<char>(file.get() ^ 0x40);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
}

TEST(Dataset, RowsSayWhereTheValuesLie) {
  TemporaryFolder folder;
  const Manifest manifest = WriteDataset(folder.path(), 500);
  const auto opened = Dataset::Open(folder.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  const Dataset& dataset = **opened;
  EXPECT_EQ(dataset.size(), 1000u);
  EXPECT_EQ(dataset.num_shards(), 2u);
  EXPECT_EQ(dataset.hash(), ManifestHash(manifest));
  EXPECT_EQ(dataset.FindField("score"), 3);
  EXPECT_EQ(dataset.FindField("none"), -1);
  EXPECT_EQ(dataset.Locate(499), (std::pair<uint32_t, uint64_t>(0, 499)));
  EXPECT_EQ(dataset.Locate(500), (std::pair<uint32_t, uint64_t>(1, 0)));
  SampleRow row;
  for (uint64_t sample : {0, 1, 17, 499, 500, 777, 999}) {
    const absl::Status status = dataset.ReadRow(sample, &row);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(row.sample, sample);
    EXPECT_EQ(row.image.width, 10 + sample);
    EXPECT_EQ(row.values[0].location.shard, sample / 500);
    EXPECT_EQ(ReadValue(dataset, row.values[0].location), ImageOf(sample));
    EXPECT_EQ(row.values[1].i64, LabelOf(sample));
    EXPECT_EQ(ReadValue(dataset, row.values[2].location), NameOf(sample));
    EXPECT_EQ(row.values[3].f64, ScoreOf(sample));
  }
  EXPECT_TRUE(absl::IsOutOfRange(dataset.ReadRow(1000, &row)));
}

TEST(Dataset, AFolderWithoutDescriptionSaysHowToMakeOne) {
  TemporaryFolder folder;
  const absl::Status status = Dataset::Open(folder.path()).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(status.ToString(), HasSubstr("headrace pack SRC " + folder.path()));
}

TEST(Dataset, AHalfMadeDatasetDoesNotOpen) {
  TemporaryFolder folder;
  WriteDataset(folder.path(), 20);
  std::filesystem::rename(folder.File("dataset.json"), folder.File("dataset.json.tmp"));
  EXPECT_TRUE(absl::IsNotFound(Dataset::Open(folder.path()).status()));
}

TEST(Dataset, FilesThatAreMissingOrCutOffAreNamed) {
  for (const char* name : {"00000.lmdb", "00001.lmdb", "00000.index", "00001.index"}) {
    for (const char* how : {"missing", "empty", "cut", "longer"}) {
      TemporaryFolder folder;
      WriteDataset(folder.path(), 20);
      const std::string path = folder.File(name);
      const auto size = static_cast<off_t>(std::filesystem::file_size(path));
      if (how == std::string("missing")) {
        std::filesystem::remove(path);
      } else {
        const off_t length = how == std::string("empty") ? 0 : how == std::string("cut") ? size - 1 : size + 1;
        ASSERT_EQ(::truncate(path.c_str(), length), 0);
      }
      const absl::Status status = Dataset::Open(folder.path()).status();
      EXPECT_TRUE(absl::IsDataLoss(status)) << name << " " << how << ": " << status;
      EXPECT_THAT(status.ToString(), HasSubstr(name));
    }
  }
}

TEST(Dataset, AnIndexOfAnotherShardIsRefused) {
  TemporaryFolder folder;
  WriteDataset(folder.path(), 20);
  std::filesystem::copy_file(folder.File("00000.index"), folder.File("00001.index"),
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_TRUE(absl::IsDataLoss(Dataset::Open(folder.path()).status()));
}

TEST(Dataset, OpeningReadsNoRowAndReadingFindsTheDamagedOne) {
  TemporaryFolder folder;
  WriteDataset(folder.path(), 20);
  const uint64_t rows_offset = 128 + 64 * 4, row_bytes = 128;
  FlipByte(folder.File("00001.index"), rows_offset + 3 * row_bytes + 50);
  const auto opened = Dataset::Open(folder.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  SampleRow row;
  for (uint64_t sample = 0; sample < 40; ++sample) {
    const absl::Status status = (*opened)->ReadRow(sample, &row);
    EXPECT_EQ(status.ok(), sample != 23) << status;
    if (sample != 23) continue;
    EXPECT_THAT(status.ToString(), HasSubstr("shard 1, sample 23"));
  }
}

TEST(Dataset, AnIndexThatIsCutWhileItIsOpenIsAStatus) {
  TemporaryFolder folder;
  WriteDataset(folder.path(), 20);
  const auto opened = Dataset::Open(folder.path());
  ASSERT_TRUE(opened.ok());
  ASSERT_EQ(::truncate(folder.File("00000.index").c_str(), 1000), 0);
  SampleRow row;
  EXPECT_TRUE((*opened)->ReadRow(0, &row).ok());
  EXPECT_TRUE(absl::IsDataLoss((*opened)->ReadRow(19, &row)));
}

TEST(Dataset, ADatasetThatIsReplacedGoesOnBeingServed) {
  TemporaryFolder folder;
  WriteDataset(folder.path(), 20);
  const auto opened = Dataset::Open(folder.path());
  ASSERT_TRUE(opened.ok());
  for (const char* name : {"dataset.json", "00000.lmdb", "00000.index", "00001.lmdb", "00001.index"}) {
    std::filesystem::remove(folder.File(name));
  }
  WriteDataset(folder.path(), 30);
  SampleRow row;
  ASSERT_TRUE((*opened)->ReadRow(19, &row).ok());
  EXPECT_EQ(ReadValue(**opened, row.values[0].location), ImageOf(19));
}

}  // namespace
}  // namespace headrace
