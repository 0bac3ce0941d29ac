// Election, start, failure and end of a private daemon.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "tests/client/client_fixture.h"

namespace headrace {
namespace {

using testing::AllOf;
using testing::HasSubstr;

int DaemonPid(hr_client* client) {
  char* answer = nullptr;
  EXPECT_EQ(hr_request(client, HR_STATS, "{}", kTimeoutMs, &answer, nullptr), HR_OK)
      << hr_last_error();
  if (answer == nullptr) return -1;
  const int pid = atoi(strchr(answer, ':') + 1);
  hr_free(answer);
  return pid;
}

// The fields of /proc/PID/stat behind the name: state, parent, process group, session.
std::vector<std::string> StatFields(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  std::istringstream rest(text.substr(text.rfind(')') + 2));
  return {std::istream_iterator<std::string>(rest), {}};
}

bool EndsWithin(int pid, int ms) {
  for (int waited = 0; waited < ms; waited += 5) {
    if (kill(pid, 0) != 0 || StatFields(pid)[0] == "Z") return true;
    usleep(5000);
  }
  return false;
}

bool NameGetsFree(const std::string& address) {
  for (int tries = 0; tries < 1000; ++tries) {
    std::ifstream file("/proc/net/unix");
    std::stringstream text;
    text << file.rdbuf();
    if (text.str().find(address) == std::string::npos) return true;
    usleep(5000);
  }
  return false;
}

TEST(PrivateDaemonTest, StartsServesAndEndsWithItsLastConnection) {
  const std::string address = FreshAddress();
  ClientPtr client = OpenClient(address, FAKE_DAEMON);
  SessionPtr session = OpenSession(client.get());
  Batch batch;
  for (int step = 0; step < 20; ++step)
    ASSERT_EQ(batch.Next(session.get()), HR_OK) << hr_last_error();
  const int daemon = DaemonPid(client.get());
  batch.Drop();
  session.reset();
  client.reset();
  EXPECT_TRUE(EndsWithin(daemon, 5000));
  EXPECT_TRUE(NameGetsFree(address));
}

TEST(PrivateDaemonTest, IsNobodysChildAndHasNoneOfOurStreamsAndDescriptors) {
  const int leak = open("/dev/zero", 0);  // without CLOEXEC, as careless libraries leave them
  const ClientPtr client = OpenClient(FreshAddress(), FAKE_DAEMON);
  const int daemon = DaemonPid(client.get());
  const std::vector<std::string> stat = StatFields(daemon);
  EXPECT_NE(stat[1], std::to_string(getpid()));
  EXPECT_NE(stat[3], std::to_string(getsid(0)));
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);  // no zombie either
  const std::string folder = "/proc/" + std::to_string(daemon) + "/fd/";
  for (int fd = 0; fd < 64; ++fd) {
    char target[256] = {};
    if (readlink((folder + std::to_string(fd)).c_str(), target, sizeof target - 1) < 0) continue;
    if (fd <= 2) {
      EXPECT_STREQ(target, "/dev/null");
    } else {
      EXPECT_THAT(target, HasSubstr("socket:")) << fd;
    }
  }
  close(leak);
}

TEST(PrivateDaemonTest, DoesNotInheritBlockedOrIgnoredSignals) {
  sigset_t block, before;
  sigemptyset(&block);
  sigaddset(&block, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &block, &before);
  signal(SIGINT, SIG_IGN);
  const ClientPtr client = OpenClient(FreshAddress(), FAKE_DAEMON);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  signal(SIGINT, SIG_DFL);
  std::ifstream file("/proc/" + std::to_string(DaemonPid(client.get())) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("SigBlk:", 0) == 0 || line.rfind("SigIgn:", 0) == 0) {
      // Signals 32 and 33 are glibc's own.
      const uint64_t set =
          std::stoull(line.substr(line.find('\t')), nullptr, 16) & ~(uint64_t{3} << 31);
      EXPECT_EQ(set, 0u) << line;
    }
  }
}

TEST(PrivateDaemonTest, RanksThatStartTogetherGetOneDaemon) {
  const std::string address = FreshAddress();
  constexpr int kRanks = 8;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(fork());
    if (ranks.back() != 0) continue;
    const ClientPtr client = OpenClient(address, FAKE_DAEMON, {}, 2000);
    const int pid = DaemonPid(client.get());
    if (write(ends[1], &pid, sizeof pid) != sizeof pid) _exit(1);
    const SessionPtr session =
        OpenSession(client.get(), SpecJson({.rank = rank, .world_size = kRanks}));
    Batch batch;
    for (int step = 0; step < 20; ++step) {
      if (batch.Next(session.get()) != HR_OK || batch.index(0) != 32 * step + 4 * rank ||
          !IsRight(batch))
        _exit(2);
    }
    _exit(0);
  }
  std::set<int> daemons;
  for (int rank = 0; rank < kRanks; ++rank) {
    int pid = -1;
    ASSERT_EQ(read(ends[0], &pid, sizeof pid), static_cast<ssize_t>(sizeof pid));
    daemons.insert(pid);
  }
  EXPECT_EQ(daemons.size(), 1u);
  for (const pid_t rank : ranks) {
    int state = -1;
    waitpid(rank, &state, 0);
    EXPECT_EQ(state, 0);
  }
  EXPECT_TRUE(EndsWithin(*daemons.begin(), 10000));
  close(ends[0]);
  close(ends[1]);
}

TEST(PrivateDaemonTest, ClientsThatComeAndGoWhileItEndsAllTheTimeNeverFail) {
  const std::string address = FreshAddress();
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 15; ++i) {
        const ClientPtr client = OpenClient(address, FAKE_DAEMON);
        ASSERT_NE(client, nullptr);
        const SessionPtr session = OpenSession(client.get());
        Batch batch;
        ASSERT_EQ(batch.Next(session.get()), HR_OK) << hr_last_error();
        ASSERT_TRUE(IsRight(batch));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

int OpenPrivate(const std::string& address, const char* executable,
                std::vector<const char*> arguments, int timeout_ms = kTimeoutMs) {
  arguments.push_back(nullptr);
  const hr_connect_options options = {address.c_str(), executable, arguments.data(), 0};
  hr_client* client = nullptr;
  const int code = hr_client_open(&options, timeout_ms, &client);
  hr_client_close(client);
  return code;
}

TEST(PrivateDaemonTest, ThreeFailedStartsAreAnErrorInTheDaemonsOwnWords) {
  const std::string address = FreshAddress();
  EXPECT_EQ(
      OpenPrivate(address, FAKE_DAEMON, {"--start-error", "host-memory: 3 bytes are too few"}),
      HR_UNAVAILABLE);
  EXPECT_THAT(hr_last_error(),
              AllOf(HasSubstr("3 tries"), HasSubstr("host-memory: 3 bytes are too few")));
  EXPECT_TRUE(NameGetsFree(address));
}

TEST(PrivateDaemonTest, AnExecutableThatIsNotThereIsNamed) {
  EXPECT_EQ(OpenPrivate(FreshAddress(), "/nowhere/headrace", {}), HR_UNAVAILABLE);
  EXPECT_THAT(hr_last_error(), AllOf(HasSubstr("/nowhere/headrace"), HasSubstr("No such file")));
}

TEST(PrivateDaemonTest, AnExecutableThatFailsWithoutWordsIsNamedWithItsStatus) {
  EXPECT_EQ(OpenPrivate(FreshAddress(), FAKE_DAEMON, {"--exit-status", "7"}), HR_UNAVAILABLE);
  EXPECT_THAT(hr_last_error(), AllOf(HasSubstr(FAKE_DAEMON), HasSubstr("status 7")));
}

TEST(PrivateDaemonTest, ADaemonThatDiesBeforeItServesIsAFailedStart) {
  EXPECT_EQ(OpenPrivate(FreshAddress(), "/bin/true", {}), HR_UNAVAILABLE);
  EXPECT_THAT(hr_last_error(), HasSubstr("3 tries"));
}

TEST(PrivateDaemonTest, ASlowStartGoesOnAcrossCallsWithShortDeadlines) {
  const std::string address = FreshAddress();
  // Each call gives its client up; the daemon that the first one started is found by a later one.
  int code = HR_DEADLINE_EXCEEDED;
  for (int tries = 0; tries < 200 && code == HR_DEADLINE_EXCEEDED; ++tries) {
    code = OpenPrivate(address, FAKE_DAEMON, {"--start-delay-ms", "300"}, 20);
  }
  EXPECT_EQ(code, HR_OK) << hr_last_error();
}

TEST(PrivateDaemonTest, NeedsAnAbstractName) {
  EXPECT_EQ(OpenPrivate("/tmp/x.sock", FAKE_DAEMON, {}), HR_INVALID_ARGUMENT);
  EXPECT_THAT(hr_last_error(), HasSubstr("abstract"));
}

TEST(PrivateDaemonTest, ItsDeathIsAnsweredByAnother) {
  const std::string address = FreshAddress();
  const ClientPtr client = OpenClient(address, FAKE_DAEMON);
  const SessionPtr session = OpenSession(client.get());
  Batch batch;
  for (int64_t step = 0; step < 60; ++step) {
    ASSERT_EQ(batch.Next(session.get()), HR_OK) << hr_last_error();
    ASSERT_EQ(batch.index(0), 4 * step);
    ASSERT_TRUE(IsRight(batch));
    if (step % 20 == 10) {
      const int daemon = DaemonPid(client.get());
      kill(daemon, SIGKILL);
      ASSERT_TRUE(EndsWithin(daemon, 5000));
    }
  }
  hr_session_stats stats;
  hr_session_get_stats(session.get(), &stats);
  EXPECT_EQ(stats.reconnections, 3u);
}

}  // namespace
}  // namespace headrace
