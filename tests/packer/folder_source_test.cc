#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "core/base/utf8.h"
#include "packer/source.h"
#include "tests/support/temporary_folder.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;
using ::headrace::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Listed {
  std::vector<std::string> classes;
  std::vector<std::string> files;  // "name label"
  std::vector<std::string> notes;  // "name: reason"
  std::string layout;
};

Listed List(const std::string& dir, const std::string& exclude = "/nowhere") {
  absl::StatusOr<std::unique_ptr<Source>> source = OpenFolderSource(dir, exclude);
  EXPECT_TRUE(source.ok()) << source.status();
  Listed listed{(*source)->classes(), {}, {}, (*source)->layout()};
  SourceItem item;
  while (*(*source)->Next(&item)) {
    if (item.verdict == Verdict::kPacked) {
      listed.files.push_back(item.name + " " + std::to_string(item.label));
    } else {
      listed.notes.push_back(item.name + ": " + item.reason);
    }
  }
  return listed;
}

TEST(FolderSource, ClassesAreTheFirstFoldersAndFilesComeInTorchvisionsOrder) {
  TemporaryFolder f;
  // torchvision sorts whole paths of folders: "cat/a-b" lies between "cat/a" and "cat/a/deep".
  for (const char* name : {"dog/1", "cat/z", "cat/b", "cat/a/deep/5", "cat/a-b/2", "cat/a/9", "Ape/x"}) f.Write(name, "");
  const Listed listed = List(f.path());
  EXPECT_EQ(listed.layout, "imagefolder");
  EXPECT_THAT(listed.classes, ElementsAre("Ape", "cat", "dog"));
  EXPECT_THAT(listed.files, ElementsAre("Ape/x 0", "cat/b 1", "cat/z 1", "cat/a/9 1", "cat/a-b/2 1", "cat/a/deep/5 1",
                                        "dog/1 2"));
}

TEST(FolderSource, AFolderWithoutFoldersHasNoLabels) {
  TemporaryFolder f;
  f.Write("b", "");
  f.Write("a", "");
  const auto source = OpenFolderSource(f.path(), "/nowhere");
  ASSERT_TRUE(source.ok());
  EXPECT_EQ((*source)->layout(), "folder");
  EXPECT_FALSE((*source)->has_labels());
  EXPECT_THAT((*source)->classes(), IsEmpty());
  EXPECT_THAT(List(f.path()).files, ElementsAre("a -1", "b -1"));
}

TEST(FolderSource, HiddenNamesAreLeftOutAndFilesBesideTheClassesAreNoted) {
  TemporaryFolder f;
  for (const char* name : {"cat/1", "cat/.hidden", ".git/x", "cat/.cache/y", "README"}) f.Write(name, "");
  const Listed listed = List(f.path());
  EXPECT_THAT(listed.classes, ElementsAre("cat"));
  EXPECT_THAT(listed.files, ElementsAre("cat/1 0"));
  EXPECT_THAT(listed.notes, ElementsAre("README: beside the class folders"));
}

TEST(FolderSource, EmptyClassesKeepTheirNumbers) {
  TemporaryFolder f;
  fs::create_directory(f.File("b"));
  f.Write("a/1", "");
  f.Write("c/1", "");
  const Listed listed = List(f.path());
  EXPECT_THAT(listed.classes, ElementsAre("a", "b", "c"));
  EXPECT_THAT(listed.files, ElementsAre("a/1 0", "c/1 2"));
}

TEST(FolderSource, LinksToFilesAndToFoldersElsewhereAreFollowed) {
  TemporaryFolder f, elsewhere;
  elsewhere.Write("store/7", "");
  elsewhere.Write("store/sub/8", "");
  elsewhere.Write("one", "");
  f.Write("cat/1", "");
  fs::create_symlink(elsewhere.File("one"), f.File("cat/2"));
  fs::create_directory_symlink(elsewhere.File("store"), f.File("cat/linked"));
  fs::create_directory_symlink(elsewhere.File("store/sub"), f.File("dog"));
  const Listed listed = List(f.path());
  EXPECT_THAT(listed.classes, ElementsAre("cat", "dog"));
  // store/sub was met as cat/linked/sub: the class `dog` is the same real folder.
  EXPECT_THAT(listed.files, ElementsAre("cat/1 0", "cat/2 0", "cat/linked/7 0", "cat/linked/sub/8 0"));
  EXPECT_THAT(listed.notes, ElementsAre("dog: a folder that is packed already under another name; not followed"));
}

TEST(FolderSource, NoRealFolderIsMetTwiceWhateverTheNamesAre) {
  TemporaryFolder f;
  f.Write("a/1", "");
  f.Write("b/2", "");
  fs::create_directory_symlink(f.File("b"), f.File("a/alias"));   // sorts before b
  fs::create_directory_symlink(f.File("a"), f.File("z"));         // a whole class
  fs::create_directory_symlink("..", f.File("a/loop"));           // to its own parent
  fs::create_directory_symlink("/", f.File("b/root"));
  const Listed listed = List(f.path());
  EXPECT_THAT(listed.classes, ElementsAre("a", "b", "z"));
  EXPECT_THAT(listed.files, ElementsAre("a/1 0", "b/2 1"));
  EXPECT_THAT(listed.notes, ElementsAre("a/alias: a link to a folder that is packed under its own name; not followed",
                                        "a/loop: a link to a folder above it; not followed",
                                        "b/root: a link to a folder above it; not followed",
                                        "z: a link to a folder that is packed under its own name; not followed"));
}

TEST(FolderSource, LinksThatLeadNowhereAndOddFilesAreNoted) {
  TemporaryFolder f;
  f.Write("cat/1", "");
  fs::create_symlink("nothing", f.File("cat/broken"));
  fs::create_symlink("self", f.File("cat/self"));
  ASSERT_EQ(::mkfifo(f.File("cat/pipe").c_str(), 0644), 0);
  const Listed listed = List(f.path());
  EXPECT_THAT(listed.files, ElementsAre("cat/1 0"));
  EXPECT_THAT(listed.notes, ElementsAre("cat/broken: a link that leads nowhere", "cat/pipe: not a regular file",
                                        "cat/self: a link that leads nowhere"));
}

TEST(FolderSource, TheDatasetItselfIsNoClass) {
  TemporaryFolder f;
  f.Write("cat/1", "");
  f.Write("packed/00000.lmdb", "");
  EXPECT_THAT(List(f.path(), f.File("packed")).classes, ElementsAre("cat"));
  f.Write("cat/packed/00000.lmdb", "");
  EXPECT_THAT(List(f.path(), f.File("cat/packed")).files, ElementsAre("cat/1 0", "packed/00000.lmdb 1"));
}

TEST(FolderSource, NamesAreBytesAndClassesAreUtf8) {
  TemporaryFolder f;
  const std::string odd = "\xFF\xFE b";
  f.Write(odd + "/1", "");
  f.Write("größe/neu\nzeile,\"x\"", "");
  const Listed listed = List(f.path());
  EXPECT_THAT(listed.classes, ElementsAre("größe", "\\xff\\xfe b"));
  EXPECT_THAT(listed.files, ElementsAre("größe/neu\nzeile,\"x\" 0", odd + "/1 1"));
}

TEST(FolderSource, AFileOrNothingIsRefused) {
  TemporaryFolder f;
  EXPECT_TRUE(absl::IsNotFound(OpenFolderSource(f.File("none"), "").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(OpenFolderSource(f.Write("list.csv", ""), "").status()));
}

TEST(EscapeToUtf8, KeepsUtf8AndEscapesTheRest) {
  for (const char* good : {"", "abc", "é", "写真", "🐟", "\xED\x9F\xBF", "\xF4\x8F\xBF\xBF"}) EXPECT_EQ(EscapeToUtf8(good), good);
  EXPECT_EQ(EscapeToUtf8("a\x80z"), "a\\x80z");
  EXPECT_EQ(EscapeToUtf8("\xC0\xAF"), "\\xc0\\xaf") << "overlong";
  EXPECT_EQ(EscapeToUtf8("\xE0\x80\xAF"), "\\xe0\\x80\\xaf") << "overlong";
  EXPECT_EQ(EscapeToUtf8("\xED\xA0\x80"), "\\xed\\xa0\\x80") << "surrogate";
  EXPECT_EQ(EscapeToUtf8("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "above Unicode";
  EXPECT_EQ(EscapeToUtf8("x\xE5\x86"), "x\\xe5\\x86") << "cut off";
}

}  // namespace
}  // namespace headrace
