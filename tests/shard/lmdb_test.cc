// The LMDB file itself: read with LMDB, written twice, on a full disk.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <lmdb.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>

#include "core/base/file.h"
#include "core/shard/index_file.h"
#include "core/shard/lmdb/shard_scanner.h"
#include "core/shard/lmdb/shard_writer.h"
#include "tests/shard/small_shards.h"
#include "tests/support/temporary_folder.h"

namespace headrace {
namespace {

using ::headrace::testing::ImageOf;
using ::headrace::testing::LabelOf;
using ::headrace::testing::NameOf;
using ::headrace::testing::SmallFields;
using ::headrace::testing::TemporaryFolder;
using ::headrace::testing::WriteShard;
using ::testing::HasSubstr;

TEST(Shard, PlainLmdbReadsEveryValue) {
  TemporaryFolder folder;
  WriteShard(folder.path(), 0, 1000, 400);
  MDB_env* env;
  MDB_txn* txn;
  ASSERT_EQ(mdb_env_create(&env), 0);
  ASSERT_EQ(mdb_env_set_maxdbs(env, 8), 0);
  ASSERT_EQ(mdb_env_open(env, folder.File("00000.lmdb").c_str(), MDB_NOSUBDIR | MDB_RDONLY | MDB_NOLOCK, 0), 0);
  ASSERT_EQ(mdb_txn_begin(env, nullptr, MDB_RDONLY, &txn), 0);
  const auto get = [&](const char* field, uint64_t sample) {
    MDB_dbi dbi;
    EXPECT_EQ(mdb_dbi_open(txn, field, 0, &dbi), 0);
    uint64_t big_endian = __builtin_bswap64(sample);
    MDB_val key{8, &big_endian}, value;
    EXPECT_EQ(mdb_get(txn, dbi, &key, &value), 0) << field << " " << sample;
    return std::string(static_cast<const char*>(value.mv_data), value.mv_size);
  };
  for (uint64_t sample = 1000; sample < 1400; ++sample) {
    EXPECT_EQ(get("image", sample), ImageOf(sample));
    EXPECT_EQ(get("name", sample), NameOf(sample));
    const int64_t label = LabelOf(sample);
    EXPECT_EQ(get("label", sample), std::string(reinterpret_cast<const char*>(&label), 8));
  }
  mdb_txn_abort(txn);
  mdb_env_close(env);
}

TEST(Shard, EachValueLiesWhereTheScannerSays) {
  TemporaryFolder folder;
  WriteShard(folder.path(), 0, 0, 5000);  // trees of several levels
  const std::string path = folder.File("00000.lmdb");
  const std::string file = folder.Read("00000.lmdb");
  auto scanner = ShardScanner::Open(path, SmallFields());
  ASSERT_TRUE(scanner.ok()) << scanner.status();
  uint64_t sample = 0;
  while (true) {
    const auto more = (*scanner)->Next();
    ASSERT_TRUE(more.ok()) << more.status();
    if (!*more) break;
    ASSERT_EQ((*scanner)->sample(), sample);
    const std::string image = ImageOf(sample);
    ASSERT_EQ(file.substr((*scanner)->values()[0].offset, image.size()), image) << sample;
    std::string name((*scanner)->values()[2].length, ' ');
    ASSERT_TRUE((*scanner)->Read((*scanner)->values()[2], name.data()).ok());
    ASSERT_EQ(name, NameOf(sample));
    ++sample;
  }
  EXPECT_EQ(sample, 5000u);
}

TEST(Shard, TheSameSamplesGiveTheSameBytes) {
  TemporaryFolder a, b;
  WriteShard(a.path(), 0, 0, 8000);  // several transactions
  // Memory that was used before must not show.
  for (int i = 0; i < 50; ++i) {
    void* dirty = std::malloc(static_cast<size_t>(5000 * (i + 1)));
    std::memset(dirty, 0xA5, static_cast<size_t>(5000 * (i + 1)));
    std::free(dirty);
  }
  WriteShard(b.path(), 0, 0, 8000);
  EXPECT_GT(std::filesystem::file_size(a.File("00000.lmdb")), uint64_t{64} << 20) << "one transaction is 32 MiB";
  EXPECT_TRUE(a.Read("00000.lmdb") == b.Read("00000.lmdb"));
  EXPECT_TRUE(a.Read("00000.index") == b.Read("00000.index"));
}

TEST(Shard, AWrongNumberOrLengthOfRowsIsFound) {
  TemporaryFolder folder;
  WriteShard(folder.path(), 0, 0, 10);
  const std::vector<Field> fields = SmallFields();
  for (uint64_t count : {9, 11}) {
    IndexRows rows(fields);
    for (uint64_t sample = 0; sample < count; ++sample) {
      SampleRow row;
      row.sample = sample;
      row.image.width = row.image.height = 1;
      row.image.format = ImageFormat::kJpeg;
      row.values.resize(4);
      row.values[0].location.length = ImageOf(sample).size();
      row.values[2].location.length = NameOf(sample).size();
      rows.Append(row);
    }
    EXPECT_TRUE(absl::IsDataLoss(rows.FillPlaces(folder.File("00000.lmdb"), fields))) << count;
  }
}

TEST(Shard, WhatIsNoLmdbFileIsRefused) {
  TemporaryFolder folder;
  EXPECT_TRUE(absl::IsNotFound(ShardScanner::Open(folder.File("none"), SmallFields()).status()));
  folder.Write("text", std::string(20000, 'x'));
  EXPECT_TRUE(absl::IsDataLoss(ShardScanner::Open(folder.File("text"), SmallFields()).status()));
  WriteShard(folder.path(), 0, 0, 3);
  std::vector<Field> more = SmallFields();
  more.push_back({"extra", FieldKind::kText, 0});
  const auto scanner = ShardScanner::Open(folder.File("00000.lmdb"), more);
  EXPECT_THAT(scanner.status().ToString(), HasSubstr("`extra`"));
}

TEST(Shard, AnExistingFileIsNotWrittenOver) {
  TemporaryFolder folder;
  folder.Write("there", "precious");
  EXPECT_TRUE(absl::IsAlreadyExists(ShardWriter::Create(folder.File("there"), SmallFields(), 1 << 20).status()));
  EXPECT_EQ(folder.Read("there"), "precious");
}

TEST(Shard, AFullDiskIsAClearErrorThatNamesTheFile) {
  TemporaryFolder folder;
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  // Odd limits end a write in its middle, which LMDB itself reports as an I/O error.
  for (rlim_t limit : {rlim_t{0}, rlim_t{8192}, rlim_t{1000001}, rlim_t{40000000}}) {
    const std::string path = folder.File("shard" + std::to_string(limit));
    const rlimit small{limit, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    absl::Status status;
    auto writer = ShardWriter::Create(path, {{"image", FieldKind::kImage, 0}}, uint64_t{1} << 30);
    status = writer.status();
    const std::vector<uint8_t> image(300000, 7);
    for (uint64_t sample = 0; status.ok() && sample < 200; ++sample) {
      status = (*writer)->Append(sample, {absl::Span<const uint8_t>(image)});
    }
    if (status.ok()) status = (*writer)->Finish();
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << limit << ": " << status;
    EXPECT_THAT(status.ToString(), HasSubstr(path)) << limit;
  }
  ::signal(SIGXFSZ, handler);
}

}  // namespace
}  // namespace headrace
