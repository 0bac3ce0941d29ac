#include "server/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "server/machine.h"
#include "tests/support/temporary_folder.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

absl::Status Set(const std::string& name, const std::vector<std::string>& values, Settings* settings) {
  return FindSetting(name)->set(values, settings);
}

TEST(SettingsTable, HasDifferentNamesAndDefaultsThatAreInRange) {
  std::set<std::string> names;
  const Settings defaults;
  for (const Setting& setting : SettingsTable()) {
    EXPECT_TRUE(names.insert(setting.name).second) << setting.name;
    EXPECT_FALSE(setting.help.empty() || setting.range.empty() || setting.default_text.empty()) << setting.name;
    Settings other;
    const std::vector<std::string> values = setting.get(defaults);
    if (!values.empty() && setting.name != "threads" && setting.name != "host_memory" && values[0] != "" &&
        setting.name != "listen_fd") {
      EXPECT_TRUE(setting.set(values, &other).ok()) << setting.name << " = " << values[0];
    }
  }
}

TEST(SettingsTable, RefusesWhatIsOutOfRangeAndNamesSettingValueAndRange) {
  Settings settings;
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{
           {"threads", "0"}, {"threads", "1025"}, {"threads", "two"}, {"threads", ""}, {"host_memory", "1"},
           {"host_memory", "much"}, {"socket_mode", "0888"}, {"socket_mode", "1777"}, {"verify", "Once"},
           {"log_level", "loud"}, {"metrics_port", "65536"}, {"grpc", "yes"}, {"frame_timeout", "99"}}) {
    const absl::Status status = Set(name, {value}, &settings);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << name << " = " << value;
    EXPECT_THAT(std::string(status.message()), HasSubstr(name + " = " + value));
  }
  EXPECT_FALSE(Set("threads", {"1", "2"}, &settings).ok());
  EXPECT_EQ(settings.threads, 0);
}

TEST(Settings, AreCompletedFromTheMachine) {
  Settings settings;
  settings.data = {"/"};
  ASSERT_TRUE(CompleteSettings(&settings).ok());
  const MachineLimits machine = ReadMachineLimits();
  EXPECT_EQ(settings.threads, machine.processors);
  EXPECT_EQ(settings.host_memory, machine.memory_bytes / 4);
  EXPECT_EQ(settings.socket, DefaultSocketPath());
  EXPECT_EQ(settings.socket_mode, 0600);
}

TEST(Settings, TakeTheSimdLimitFromTheEnvironmentUnlessItIsSaid) {
  ::setenv("HEADRACE_ISA", "avx2", 1);
  Settings settings;
  settings.data = {"/"};
  EXPECT_TRUE(CompleteSettings(&settings).ok());
  EXPECT_EQ(settings.isa, Isa::kAvx2);
  settings.isa = Isa::kPortable;
  EXPECT_TRUE(CompleteSettings(&settings).ok());
  EXPECT_EQ(settings.isa, Isa::kPortable);
  ::setenv("HEADRACE_ISA", "mmx", 1);
  settings.isa = Isa::kBest;
  EXPECT_THAT(std::string(CompleteSettings(&settings).message()), HasSubstr("$HEADRACE_ISA: isa = mmx"));
  ::unsetenv("HEADRACE_ISA");
}

TEST(Settings, OpenTheSocketForOthersOnlyWhenOthersAreAllowed) {
  Settings settings;
  settings.data = {"/"};
  settings.allow = {"uid:12"};
  ASSERT_TRUE(CompleteSettings(&settings).ok());
  EXPECT_EQ(settings.socket_mode, 0666);
}

TEST(Settings, NeedDataUnlessTheDaemonIsPrivate) {
  Settings settings;
  EXPECT_TRUE(absl::IsInvalidArgument(CompleteSettings(&settings)));
  settings.private_daemon = true;
  EXPECT_TRUE(absl::IsInvalidArgument(CompleteSettings(&settings)));  // where should it listen?
  settings.listen_fd = 3;
  EXPECT_TRUE(CompleteSettings(&settings).ok());
  EXPECT_FALSE(settings.grpc);
}

TEST(Settings, PrintedAreAConfigurationFileWithTheSameSettings) {
  testing::TemporaryFolder folder;
  Settings settings;
  settings.data = {"/data", "/mnt/\"quoted\\ one", "two\nlines\x7f"};
  settings.threads = 7;
  settings.host_memory = 3ull << 30;
  settings.socket_mode = 0660;
  settings.allow = {"uid:5", "@video"};
  settings.verify = Verify::kEvery;
  settings.log_file = "/var/log/headrace";
  settings.socket = "/run/x.sock";
  settings.grpc = false;
  const std::string text = FormatSettings(settings);
  Settings read;
  const absl::Status status = LoadConfigFile(folder.Write("a.toml", text), false, &read);
  ASSERT_TRUE(status.ok()) << status << "\n" << text;
  EXPECT_EQ(FormatSettings(read), text);
  EXPECT_EQ(read.data, settings.data);
  EXPECT_EQ(read.socket_mode, 0660);
  settings.log_file.clear();
  EXPECT_TRUE(LoadConfigFile(folder.Write("b.toml", FormatSettings(settings)), false, &read).ok());
}

struct BadFile {
  const char* text;
  const char* message;
};

class BadConfigFile : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadConfigFile, IsRefusedWithItsLine) {
  testing::TemporaryFolder folder;
  Settings settings;
  const absl::Status status = LoadConfigFile(folder.Write("bad.toml", GetParam().text), false, &settings);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
  EXPECT_THAT(std::string(status.message()), HasSubstr("bad.toml, line "));
}

INSTANTIATE_TEST_SUITE_P(
    Files, BadConfigFile,
    ::testing::Values(BadFile{"threads = 2\ntreads = 3\n", "line 2: unknown key 'treads'"},
                      BadFile{"private = true\n", "unknown key 'private'"}, BadFile{"threads = \"many\"\n", "threads = many"},
                      BadFile{"threads = 1.5\n", "threads must be"}, BadFile{"threads = [1, 2]\n", "threads must be"},
                      BadFile{"\n\nhost_memory = 5\n", "line 3: host_memory = 5"}, BadFile{"[data]\nx = 1\n", "data must be"},
                      BadFile{"threads = = 2\n", "line 1"}, BadFile{"data = [[1]]\n", "data must be"}));

TEST(ConfigFile, ReadAgainChangesOnlyWhatMayChange) {
  testing::TemporaryFolder folder;
  Settings settings;
  settings.threads = 3;
  const std::string path = folder.Write("a.toml", "threads = 9\nlog_level = \"error\"\n");
  ASSERT_TRUE(LoadConfigFile(path, true, &settings).ok());
  EXPECT_EQ(settings.threads, 3);
  EXPECT_EQ(settings.log_level, LogLevel::kError);
}

TEST(OperationsPage, ShowsTheTableOfSettings) {
  const std::ifstream file(SOURCE_DIR "/docs/operations.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_THAT(text.str(), HasSubstr(FormatSettingsTable())) << "paste the output of `headrace serve --print-settings`";
}

}  // namespace
}  // namespace headrace
