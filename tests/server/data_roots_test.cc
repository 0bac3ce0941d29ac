#include "server/data_roots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "server/dataset_cache.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_dataset.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class DataRootsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* dir : {"root/a/b", "root2", "outside/secret", "rootless"}) fs::create_directories(folder_.File(dir));
    fs::create_symlink(folder_.File("outside"), folder_.File("root/link_out"));
    fs::create_symlink("../outside", folder_.File("root/relative_out"));
    fs::create_symlink("a/b", folder_.File("root/link_in"));
    fs::create_symlink("loop", folder_.File("root/loop"));
    roots_ = *DataRoots::Create({folder_.File("root")});
  }
  absl::Status StatusOf(const std::string& name) { return roots_.Resolve(folder_.File(name)).status(); }

  testing::TemporaryFolder folder_;
  DataRoots roots_ = DataRoots::Unrestricted();
};

TEST_F(DataRootsTest, WhatLiesInsideResolvesWithoutLinksAndDots) {
  const std::string real = fs::canonical(folder_.path()).string();
  EXPECT_EQ(*roots_.Resolve(folder_.File("root")), real + "/root");
  EXPECT_EQ(*roots_.Resolve(folder_.File("root/a/../a/./b/")), real + "/root/a/b");
  EXPECT_EQ(*roots_.Resolve(folder_.File("root/link_in")), real + "/root/a/b");
}

TEST_F(DataRootsTest, WhatLeadsOutsideIsPermissionDenied) {
  for (const char* name : {"outside", "outside/secret", "root/../outside", "root/a/../../outside", "root/link_out",
                           "root/link_out/secret", "root/relative_out/secret", "rootless", "root2", "",
                           "root/nothing/../../outside"}) {
    EXPECT_TRUE(absl::IsPermissionDenied(StatusOf(name))) << name << ": " << StatusOf(name);
  }
  EXPECT_TRUE(absl::IsPermissionDenied(roots_.Resolve("/etc").status()));
  EXPECT_TRUE(absl::IsPermissionDenied(roots_.Resolve("/").status()));
}

TEST_F(DataRootsTest, WhetherSomethingExistsOutsideIsNotTold) {
  const auto without_path = [&](const std::string& name) {
    std::string message(StatusOf(name).message());
    return message.substr(folder_.File(name).size());
  };
  EXPECT_EQ(without_path("outside/secret"), without_path("outside/nothing"));
  EXPECT_EQ(without_path("root/link_out/secret"), without_path("root/link_out/nothing"));
}

TEST_F(DataRootsTest, WhatIsMissingInsideIsNotFound) {
  EXPECT_TRUE(absl::IsNotFound(StatusOf("root/nothing")));
  EXPECT_TRUE(absl::IsNotFound(StatusOf("root/a/nothing/deeper")));
}

TEST_F(DataRootsTest, RelativePathsAndLoopsAreErrors) {
  EXPECT_TRUE(absl::IsInvalidArgument(roots_.Resolve("root").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(roots_.Resolve("").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(roots_.Resolve(std::string("/a\0b", 4)).status()));
  EXPECT_FALSE(StatusOf("root/loop").ok());
  EXPECT_FALSE(roots_.Resolve("/" + std::string(5000, 'x')).ok());
}

TEST_F(DataRootsTest, ARootMustBeAnExistingDirectory) {
  EXPECT_TRUE(absl::IsNotFound(DataRoots::Create({folder_.File("nothing")}).status()));
  EXPECT_FALSE(DataRoots::Create({folder_.Write("file", "")}).ok());
}

// A dataset's folder with one of its files replaced by a link to a copy outside.
TEST_F(DataRootsTest, ADatasetWhoseFilesAreLinksToTheOutsideDoesNotOpen) {
  const testing::TinyDataset tiny({.samples = 30});
  for (const char* name : {"00000.lmdb", "00000.index", "dataset.json"}) {
    const std::string inside = folder_.File("root/data"), outside = folder_.File("outside/data");
    fs::remove_all(inside);
    fs::remove_all(outside);
    fs::copy(tiny.dir(), inside);
    fs::copy(tiny.dir(), outside);
    DatasetCache cache(roots_);
    EXPECT_TRUE(cache.Get(inside).ok());
    fs::remove(inside + "/" + name);
    fs::create_symlink(outside + "/" + name, inside + "/" + name);
    DatasetCache fresh(roots_);
    const absl::Status status = fresh.Get(inside).status();
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << name << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
  }
}

TEST(DatasetCache, SharesAnUnchangedDatasetAndOpensAChangedOneAnew) {
  const testing::TinyDataset tiny({.samples = 30});
  DatasetCache cache(DataRoots::Unrestricted());
  const auto first = *cache.Get(tiny.dir());
  EXPECT_EQ(first, *cache.Get(tiny.dir() + "/../" + fs::path(tiny.dir()).filename().string()));
  fs::last_write_time(tiny.dir() + "/dataset.json", fs::file_time_type::clock::now() + std::chrono::seconds(5));
  const auto second = *cache.Get(tiny.dir());
  EXPECT_NE(first, second);
  EXPECT_EQ(first->hash(), second->hash());
  EXPECT_EQ(second, *cache.Get(tiny.dir()));
}

TEST(DatasetCache, LetsGoOfADeletedDataset) {
  DatasetCache cache(DataRoots::Unrestricted());
  const testing::TinyDataset other({.samples = 30});
  std::weak_ptr<const Dataset> gone;
  {
    const testing::TinyDataset tiny({.samples = 30});
    gone = *cache.Get(tiny.dir());
    EXPECT_FALSE(gone.expired());
  }
  ASSERT_TRUE(cache.Get(other.dir()).ok());
  EXPECT_TRUE(gone.expired());
}

}  // namespace
}  // namespace headrace
