#include "packer/unpack.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <random>

#include "packer/pack.h"
#include "tests/support/jpeg_maker.h"
#include "tests/support/temporary_folder.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;
using ::headrace::testing::AllSamplings;
using ::headrace::testing::DecodeWhole;
using ::headrace::testing::JpegOptions;
using ::headrace::testing::MakeJpeg;
using ::headrace::testing::Process;
using ::headrace::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SafeName, NeverLeavesTheFolder) {
  EXPECT_EQ(SafeName("a/b.jpg"), "a/b.jpg");
  EXPECT_EQ(SafeName("/etc/passwd"), "etc/passwd");
  EXPECT_EQ(SafeName("../../x"), "x");
  EXPECT_EQ(SafeName("a/../../b"), "a/b");
  EXPECT_EQ(SafeName("./a//b/."), "a/b");
  EXPECT_EQ(SafeName("..."), "...");
  EXPECT_EQ(SafeName("a/..b/c.."), "a/..b/c..");
  for (const char* nothing : {"", "/", "..", "./..", "//"}) EXPECT_EQ(SafeName(nothing), "") << nothing;
}

class UnpackTest : public ::testing::Test {
 protected:
  std::string Jpeg(uint32_t seed) {
    std::mt19937 random(seed);
    JpegOptions options;
    options.sampling = AllSamplings()[0];
    const std::vector<uint8_t> bytes = MakeJpeg(options, &random);
    return std::string(bytes.begin(), bytes.end());
  }

  // Packs a list of paths below the test's folder.
  void PackList(const std::vector<std::string>& paths) {
    std::string csv = "path\n";
    for (const std::string& path : paths) csv += path + "\n";
    PackOptions options;
    options.source = folder_.Write("lists/list.csv", csv);
    options.source_is_list = true;
    options.destination = folder_.File("dst");
    PackProgress progress;
    const auto packed = Pack(options, &progress);
    ASSERT_TRUE(packed.ok()) << packed.status();
    ASSERT_EQ(packed->samples, paths.size());
  }

  UnpackSummary Unpack() {
    failures_.clear();
    transcoded_.clear();
    UnpackProgress progress;
    const auto summary = UnpackDataset(folder_.File("dst"), folder_.File("out"), &progress,
                                       [&](const std::string& what) { failures_.push_back(what); },
                                       [&](const std::string& name) { transcoded_.push_back(name); });
    EXPECT_TRUE(summary.ok()) << summary.status();
    return summary.ok() ? *summary : UnpackSummary();
  }

  TemporaryFolder folder_;
  std::vector<std::string> failures_, transcoded_;
};

TEST_F(UnpackTest, FilesComeBackUnderTheirNamesAndOutsideNamesStayInside) {
  folder_.Write("lists/a/b/1.jpg", Jpeg(1));
  folder_.Write("lists/2.jpg", Jpeg(2));
  folder_.Write("up.jpg", Jpeg(3));
  const std::string absolute = folder_.Write("abs.jpg", Jpeg(4));
  PackList({"a/b/1.jpg", "2.jpg", "../up.jpg", absolute, "2.jpg"});
  const UnpackSummary summary = Unpack();
  EXPECT_EQ(summary.files, 4u);
  EXPECT_EQ(summary.present, 1u) << "the path that is listed twice";
  EXPECT_EQ(summary.renamed, 2u);
  EXPECT_EQ(folder_.Read("out/a/b/1.jpg"), Jpeg(1));
  EXPECT_EQ(folder_.Read("out/2.jpg"), Jpeg(2));
  EXPECT_EQ(folder_.Read("out/up.jpg"), Jpeg(3));
  EXPECT_EQ(folder_.Read("out" + absolute), Jpeg(4));
  EXPECT_EQ(Unpack().present, 5u) << "a second run finds everything there";
  EXPECT_THAT(failures_, ElementsAre());
}

TEST_F(UnpackTest, TranscodedImagesAreNamed) {
  std::mt19937 random(5);
  JpegOptions options;
  options.sampling = AllSamplings()[1];
  options.process = Process::kProgressive;
  const std::vector<uint8_t> progressive = MakeJpeg(options, &random);
  folder_.Write("lists/p.jpg", std::string(progressive.begin(), progressive.end()));
  folder_.Write("lists/1.jpg", Jpeg(1));
  PackList({"1.jpg", "p.jpg"});
  EXPECT_EQ(Unpack().transcoded, 1u);
  EXPECT_THAT(transcoded_, ElementsAre("p.jpg"));
  const std::string unpacked = folder_.Read("out/p.jpg");
  EXPECT_EQ(DecodeWhole({unpacked.begin(), unpacked.end()}), DecodeWhole(progressive));
  EXPECT_EQ(folder_.Read("out/1.jpg"), Jpeg(1));
}

TEST_F(UnpackTest, DifferentFilesUnderOneNameAreAFailureAndNothingIsReplaced) {
  folder_.Write("lists/x.jpg", Jpeg(1));
  folder_.Write("x.jpg", Jpeg(2));
  PackList({"x.jpg", "../x.jpg"});
  EXPECT_EQ(Unpack().failed, 1u);
  EXPECT_THAT(failures_, ElementsAre(HasSubstr("another file is there")));
  EXPECT_EQ(folder_.Read("out/x.jpg"), Jpeg(1));
}

TEST_F(UnpackTest, LinksBelowOutAreNotFollowed) {
  folder_.Write("lists/a/1.jpg", Jpeg(1));
  folder_.Write("lists/2.jpg", Jpeg(2));
  PackList({"a/1.jpg", "2.jpg"});
  fs::create_directories(folder_.File("out"));
  fs::create_directories(folder_.File("target"));
  fs::create_directory_symlink(folder_.File("target"), folder_.File("out/a"));
  fs::create_symlink(folder_.File("target/new.jpg"), folder_.File("out/2.jpg"));
  EXPECT_EQ(Unpack().failed, 2u);
  EXPECT_TRUE(fs::is_empty(folder_.File("target")));
}

}  // namespace
}  // namespace headrace
