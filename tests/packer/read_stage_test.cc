#include "packer/read_stage.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <random>

#include "tests/support/jpeg_maker.h"
#include "tests/support/temporary_folder.h"

namespace headrace {
namespace {

using ::headrace::testing::AllSamplings;
using ::headrace::testing::JpegOptions;
using ::headrace::testing::MakeJpeg;
using ::headrace::testing::TemporaryFolder;
using ::testing::HasSubstr;

// Hands out given files, then an end or an error.
class FakeSource final : public Source {
 public:
  explicit FakeSource(std::vector<std::string> paths, absl::Status end = absl::OkStatus())
      : paths_(std::move(paths)), end_(std::move(end)) {}
  absl::StatusOr<bool> Next(SourceItem* item) override {
    if (next_ == paths_.size()) {
      if (!end_.ok()) return end_;
      return false;
    }
    *item = {};
    item->path = paths_[next_];
    item->name = std::to_string(next_++);
    return true;
  }

 private:
  const std::vector<std::string> paths_;
  const absl::Status end_;
  size_t next_ = 0;
};

std::string Jpeg(int width, int height, uint32_t seed) {
  std::mt19937 random(seed);
  JpegOptions options;
  options.width = width;
  options.height = height;
  options.sampling = AllSamplings()[0];
  const std::vector<uint8_t> bytes = MakeJpeg(options, &random);
  return std::string(bytes.begin(), bytes.end());
}

TEST(ReadStage, FilesComeInOrderWithTheirBytesWhateverTheThreadsAndTheMemory) {
  TemporaryFolder folder;
  std::vector<std::string> paths, contents;
  for (int i = 0; i < 150; ++i) {
    contents.push_back(Jpeg(8 + i % 7 * 40, 8 + i % 11 * 10, static_cast<uint32_t>(i)));
    paths.push_back(folder.Write(std::to_string(i), contents.back()));
  }
  for (int threads : {1, 2, 7}) {
    for (uint64_t max_bytes : {uint64_t{1}, uint64_t{30000}, uint64_t{48} << 20}) {
      FakeSource source(paths);
      ReadStage stage({threads, false, threads == 7 ? size_t{1} : size_t{16}, max_bytes}, &source);
      ReadFileResult result;
      for (size_t i = 0; i < contents.size(); ++i) {
        const auto more = stage.Next(&result);
        ASSERT_TRUE(more.ok() && *more);
        ASSERT_EQ(result.item.verdict, Verdict::kPacked) << result.item.reason;
        EXPECT_EQ(result.item.name, std::to_string(i));
        EXPECT_EQ(result.image.width, 8 + i % 7 * 40);
        EXPECT_EQ(std::string(result.content().begin(), result.content().end()), contents[i]);
        EXPECT_EQ(result.xxh3, XXH3_64bits(contents[i].data(), contents[i].size()));
        stage.Recycle(std::move(result));
      }
      EXPECT_FALSE(*stage.Next(&result));
    }
  }
}

TEST(ReadStage, WhatIsNoReadableImageHasAVerdictAndAReason) {
  TemporaryFolder folder;
  ASSERT_EQ(::mkfifo(folder.File("pipe").c_str(), 0644), 0);
  FakeSource source({folder.Write("text", "hello"), folder.Write("empty", ""), folder.File("missing"), folder.path(),
                     folder.File("pipe"), folder.Write("good", Jpeg(9, 9, 1)),
                     folder.Write("cut", Jpeg(64, 64, 2).substr(0, 30))});
  ReadStage stage({2, false}, &source);
  const std::vector<Verdict> expected = {Verdict::kRejected, Verdict::kRejected, Verdict::kSkipped, Verdict::kSkipped,
                                         Verdict::kSkipped,  Verdict::kPacked,   Verdict::kRejected};
  ReadFileResult result;
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_TRUE(*stage.Next(&result));
    EXPECT_EQ(result.item.verdict, expected[i]) << i;
    EXPECT_EQ(result.item.reason.empty(), expected[i] == Verdict::kPacked) << i;
    stage.Recycle(std::move(result));
  }
}

TEST(ReadStage, CheckDecodesEveryImage) {
  TemporaryFolder folder;
  const std::string good = Jpeg(200, 200, 3);
  FakeSource source({folder.Write("good", good), folder.Write("cut", good.substr(0, good.size() / 2))});
  ReadStage stage({2, true}, &source);
  ReadFileResult result;
  ASSERT_TRUE(*stage.Next(&result));
  EXPECT_EQ(result.item.verdict, Verdict::kPacked);
  EXPECT_FALSE(result.image.damaged);
  stage.Recycle(std::move(result));
  ASSERT_TRUE(*stage.Next(&result));
  EXPECT_NE(result.item.verdict, Verdict::kPacked) << "the cut image: " << result.item.reason;
  stage.Recycle(std::move(result));
}

TEST(ReadStage, TheSourcesErrorComesBehindItsFiles) {
  TemporaryFolder folder;
  FakeSource source({folder.Write("good", Jpeg(9, 9, 1))}, absl::DataLossError("the list broke"));
  ReadStage stage({3, false}, &source);
  ReadFileResult result;
  ASSERT_TRUE(*stage.Next(&result));
  stage.Recycle(std::move(result));
  EXPECT_THAT(stage.Next(&result).status().ToString(), HasSubstr("the list broke"));
}

TEST(ReadStage, CanBeLeftAtAnyMoment) {
  TemporaryFolder folder;
  std::vector<std::string> paths;
  for (int i = 0; i < 50; ++i) paths.push_back(folder.Write(std::to_string(i), Jpeg(40, 40, 5)));
  for (int taken = 0; taken < 10; ++taken) {
    FakeSource source(paths);
    ReadStage stage({4, false, 8, 4000}, &source);
    ReadFileResult result;
    for (int i = 0; i < taken; ++i) {
      ASSERT_TRUE(*stage.Next(&result));
      if (i + 1 < taken) stage.Recycle(std::move(result));
    }
  }
}

}  // namespace
}  // namespace headrace
