#include "core/shard/known_bad.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_dataset.h"

namespace headrace::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class KnownBadTest : public ::testing::Test {
 protected:
  // What a run that starts now would know.
  std::vector<std::string> Known() const {
    std::vector<std::string> all;
    for (const auto& [sample, entry] : KnownBad(tiny_.Open(), state_.path()).entries()) {
      all.push_back(std::to_string(sample) + ": " + std::to_string(entry.rows) + " " + entry.reason);
    }
    return all;
  }
  std::string File() const { return tiny_.dir() + "/" + KnownBad::kFileName; }
  std::string Text() const {
    std::stringstream text;
    text << std::ifstream(File(), std::ios::binary).rdbuf();
    return text.str();
  }
  void Write(const std::string& text) const { std::ofstream(File(), std::ios::binary) << text; }
  void Add(uint64_t sample, uint32_t rows, const std::string& reason) const {
    KnownBad(tiny_.Open(), state_.path()).Add(sample, rows, reason);
  }

  const TinyDataset tiny_{{.samples = 40}};
  const TemporaryFolder state_;
};

TEST_F(KnownBadTest, LaterRunsKnowWhatWasAdded) {
  EXPECT_THAT(Known(), IsEmpty());
  EXPECT_FALSE(fs::exists(File())) << "looking leaves nothing behind";
  KnownBad known(tiny_.Open(), state_.path());
  EXPECT_EQ(known.Find(7, 1000), std::nullopt);
  known.Add(7, 16, "no such table: “x y”");
  known.Add(3, 0, "wrong hash");
  EXPECT_EQ(known.Find(7, 15), std::nullopt) << "fewer rows do not reach the damage";
  EXPECT_EQ(known.Find(7, 16), "no such table: “x y”");
  EXPECT_EQ(known.Find(3, 1), "wrong hash");
  EXPECT_EQ(known.Find(4, 1000), std::nullopt);
  EXPECT_THAT(Known(), ElementsAre("3: 0 wrong hash", "7: 16 no such table: “x y”"));
  known.Add(7, 20, "further down");  // known already
  known.Add(7, 8, "further up");
  EXPECT_THAT(Known(), ElementsAre("3: 0 wrong hash", "7: 8 further up"));
  EXPECT_TRUE(fs::is_empty(state_.path()));
}

TEST_F(KnownBadTest, WhatIsNotALineOfThisDatasetCountsForNothing) {
  Add(7, 16, "reason");
  const std::string good = Text();
  std::string other_hash = good, other_sample = good;
  other_hash[20] = other_hash[20] == '0' ? '1' : '0';
  other_sample.replace(other_sample.rfind(" 7 "), 3, " 8 ");
  for (const std::string& text : {good.substr(0, good.size() - 4), other_hash, other_sample, std::string("\n\0\xFF\n", 4),
                                  std::string("nonsense"), std::string(100, '\n'), good.substr(0, 30)}) {
    Write(text);
    EXPECT_THAT(Known(), IsEmpty()) << text;
    Write(text + good);
    EXPECT_THAT(Known(), ElementsAre("7: 16 reason")) << text;
    Add(3, 0, "next");
    EXPECT_THAT(Known(), ElementsAre("3: 0 next", "7: 16 reason")) << text;
  }
}

TEST_F(KnownBadTest, AShardThatChangedIsLookedAtAnew) {
  Add(7, 16, "reason");
  ASSERT_THAT(Known(), ElementsAre("7: 16 reason"));
  const std::string shard = tiny_.Open()->shard_path(tiny_.Open()->Locate(7).first);
  KnownBad before(tiny_.Open(), state_.path());
  EXPECT_EQ(before.Find(7, 16), "reason");
  fs::last_write_time(shard, fs::file_time_type::clock::now());
  EXPECT_THAT(Known(), IsEmpty());
  EXPECT_EQ(before.Find(7, 16), std::nullopt) << "while it is served, too";
  before.Add(7, 40, "other reason");
  EXPECT_EQ(before.Find(7, 40), "other reason");
  EXPECT_THAT(Known(), ElementsAre("7: 40 other reason"));
}

TEST_F(KnownBadTest, CutAtAnyByteItLosesLinesAndInventsNone) {
  for (uint64_t sample : {3, 7, 9}) Add(sample, 16, "reason");
  const std::string whole = Text();
  const std::vector<std::string> all = {"3: 16 reason", "7: 16 reason", "9: 16 reason"};
  for (size_t size = 0; size <= whole.size(); ++size) {
    Write(whole.substr(0, size));
    const std::vector<std::string> known = Known();
    ASSERT_EQ(known, std::vector<std::string>(all.begin(), all.begin() + static_cast<ptrdiff_t>(known.size())));
    Add(20, 1, "after the cut");
    ASSERT_EQ(Known().size(), known.size() + 1);
  }
}

TEST_F(KnownBadTest, AFileThatIsNoPlainFileIsLeftAlone) {
  const TemporaryFolder elsewhere;
  const std::string victim = elsewhere.Write("victim", "precious");
  const auto with = [&](const std::function<void()>& put) {
    fs::remove_all(state_.path());
    put();
    KnownBad known(tiny_.Open(), state_.path());
    EXPECT_THAT(known.problem(), HasSubstr(KnownBad::kFileName));
    known.Add(7, 16, "reason");
    EXPECT_EQ(known.Find(7, 16), "reason");
    EXPECT_THAT(Known(), ElementsAre("7: 16 reason")) << "in the other folder, which was made";
    EXPECT_EQ(elsewhere.Read("victim"), "precious");
    fs::remove_all(File());
  };
  with([&] { fs::create_symlink(victim, File()); });
  with([&] { fs::create_symlink(elsewhere.File("new"), File()); });
  with([&] { fs::create_hard_link(victim, File()); });
  with([&] { fs::create_directory(File()); });
  with([&] { ASSERT_EQ(::mkfifo(File().c_str(), 0666), 0); });
  EXPECT_FALSE(fs::exists(elsewhere.File("new")));
}

TEST_F(KnownBadTest, TheFileIsBoundedAndAnEndlessOneIsNotRead) {
  Write("\n");
  fs::resize_file(File(), uint64_t{1} << 40);  // sparse
  EXPECT_THAT(Known(), IsEmpty());
  Add(7, 16, "reason");
  EXPECT_THAT(Known(), ElementsAre("7: 16 reason"));
  EXPECT_LT(fs::file_size(File()), 500u);
  const std::string line = Text();
  std::string full;
  while (full.size() + line.size() <= KnownBad::kMaxFileBytes) full += line;
  Write(full);
  KnownBad known(tiny_.Open(), state_.path());
  known.Add(8, 1, "no room");
  EXPECT_EQ(known.Find(8, 1), "no room");
  EXPECT_THAT(Known(), ElementsAre("7: 16 reason"));
  EXPECT_EQ(fs::file_size(File()), full.size());
  full[40] ^= 1;
  Write(full);
  Add(8, 1, "room for what was useless");
  EXPECT_THAT(Known(), ElementsAre("7: 16 reason", "8: 1 room for what was useless"));
  EXPECT_LT(fs::file_size(File()), 1000u);
}

TEST_F(KnownBadTest, AReasonThatWouldNotComeBackAsItWasIsNotKept) {
  for (const std::string& reason : {std::string("two\nlines"), std::string(501, 'x')}) {
    KnownBad known(tiny_.Open(), state_.path());
    known.Add(7, 16, reason);
    EXPECT_EQ(known.Find(7, 16), std::nullopt);
  }
  EXPECT_FALSE(fs::exists(File()));
}

TEST_F(KnownBadTest, DaemonsAndThreadsThatShareAFileLoseNothing) {
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<KnownBad>> daemons;
  for (int i = 0; i < 2; ++i) daemons.push_back(std::make_unique<KnownBad>(tiny_.Open(), state_.path()));
  for (uint64_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (uint64_t sample = i / 2; sample < 40; sample += 2) daemons[i % 2]->Add(sample, 16, std::string(300, 'r'));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Known().size(), 40u);
  const std::string text = Text();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2 * 2 * 40) << "each daemon wrote each sample once";
}

}  // namespace
}  // namespace headrace::testing
