// Finding a daemon and asking it.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "tests/client/client_fixture.h"

namespace headrace {
namespace {

using testing::AllOf;
using testing::HasSubstr;

int Open(const std::string& address, int timeout_ms, ClientPtr* client) {
  const hr_connect_options options = {address.c_str(), nullptr, nullptr, 0};
  hr_client* out = nullptr;
  const int code = hr_client_open(&options, timeout_ms, &out);
  client->reset(out);
  return code;
}

TEST(ConnectTest, WaitsForAListenerAndNamesItAtTheDeadline) {
  ClientPtr client;
  const std::string address = FreshAddress();
  EXPECT_EQ(Open(address, 60, &client), HR_DEADLINE_EXCEEDED);
  EXPECT_THAT(hr_last_error(),
              AllOf(HasSubstr("no daemon listens at " + address), HasSubstr("60 ms")));
  std::optional<FakeDaemonProcess> daemon;
  std::thread starter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    daemon.emplace(address, std::vector<std::string>{});
  });
  EXPECT_EQ(Open(address, kTimeoutMs, &client), HR_OK) << hr_last_error();
  starter.join();
}

TEST(ConnectTest, APathInTheFileSystemWorksToo) {
  char folder[] = "/tmp/headrace-test-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string path = std::string(folder) + "/headrace.sock";
  {
    const FakeDaemonProcess daemon(path, {});
    const ClientPtr client = OpenClient(path);
    const SessionPtr session = OpenSession(client.get());
    Batch batch;
    EXPECT_EQ(batch.Next(session.get()), HR_OK);
  }
  unlink(path.c_str());
  rmdir(folder);
}

TEST(ConnectTest, AListenerOfAnotherUserIsNotTrusted) {
  if (geteuid() != 0)
    return;  // only root can make one; the other half of the rule is used by every other test
  const std::string address = FreshAddress();
  const int program = open(FAKE_DAEMON, O_RDONLY | O_CLOEXEC);  // which may lie where the other user may not look
  ASSERT_GE(program, 0);
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(65534) != 0) _exit(2);
    const char* const arguments[] = {FAKE_DAEMON, "--socket", address.c_str(), nullptr};
    fexecve(program, const_cast<char* const*>(arguments), environ);
    _exit(3);
  }
  ClientPtr client;
  EXPECT_EQ(Open(address, kTimeoutMs, &client), HR_PERMISSION_DENIED);
  EXPECT_THAT(hr_last_error(), HasSubstr("uid 65534"));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(program);
}

TEST(ConnectTest, AddressesThatCannotBeAreRefused) {
  ClientPtr client;
  EXPECT_EQ(Open("", 1, &client), HR_INVALID_ARGUMENT);
  EXPECT_EQ(Open("@", 1, &client), HR_INVALID_ARGUMENT);
  EXPECT_EQ(Open(std::string(200, 'x'), 1, &client), HR_INVALID_ARGUMENT);
}

TEST(ConnectTest, AnotherProtocolVersionIsAClearError) {
  const std::string address = FreshAddress();
  const FakeDaemonProcess daemon(address, {"--protocol-version", "9"});
  ClientPtr client;
  EXPECT_EQ(Open(address, kTimeoutMs, &client), HR_FAILED_PRECONDITION);
  EXPECT_THAT(hr_last_error(), HasSubstr("protocol version 9"));
}

TEST(ConnectTest, ARefusalBeforeAnyRequestIsReported) {
  const std::string address = FreshAddress();
  const FakeDaemonProcess daemon(address, {"--refuse", "uid 17 is not allowed"});
  ClientPtr client;
  EXPECT_EQ(Open(address, kTimeoutMs, &client), HR_PERMISSION_DENIED);
  EXPECT_STREQ(hr_last_error(), "uid 17 is not allowed");
}

TEST(ConnectTest, ADaemonThatDoesNotAnswerIsAnErrorAtTheDeadline) {
  const std::string address = FreshAddress();
  const FakeDaemonProcess daemon(address, {"--silent", "1"});
  ClientPtr client;
  EXPECT_EQ(Open(address, 200, &client), HR_DEADLINE_EXCEEDED);
  EXPECT_THAT(hr_last_error(), AllOf(HasSubstr(address), HasSubstr("200 ms")));
}

TEST(RequestTest, JsonGoesInAndComesBack) {
  const std::string address = FreshAddress();
  const FakeDaemonProcess daemon(address, {});
  const ClientPtr client = OpenClient(address);
  char* answer = nullptr;
  ASSERT_EQ(
      hr_request(client.get(), HR_DESCRIBE, "{\"dataset\": \"/x\"}", kTimeoutMs, &answer, nullptr),
      HR_OK);
  EXPECT_STREQ(answer, "{\"asked\": {\"dataset\": \"/x\"}}");
  hr_free(answer);
}

TEST(RequestTest, ADescriptorComesAlong) {
  const std::string address = FreshAddress();
  const FakeDaemonProcess daemon(address, {});
  const ClientPtr client = OpenClient(address);
  char* answer = nullptr;
  int fd = -1;
  ASSERT_EQ(hr_request(client.get(), HR_SAMPLE, "{}", kTimeoutMs, &answer, &fd), HR_OK);
  hr_free(answer);
  char bytes[20] = {};
  EXPECT_EQ(pread(fd, bytes, sizeof bytes, 0), 12);
  EXPECT_STREQ(bytes, "sample bytes");
  close(fd);
}

TEST(RequestTest, AnAnswerOfMegabytesArrivesWhole) {
  const std::string address = FreshAddress();
  const FakeDaemonProcess daemon(address, {});
  const ClientPtr client = OpenClient(address);
  char* answer = nullptr;
  ASSERT_EQ(hr_request(client.get(), HR_AUDIT, "{}", kTimeoutMs, &answer, nullptr), HR_OK);
  EXPECT_EQ(std::string(answer), std::string(3 << 20, 'a'));
  hr_free(answer);
}

TEST(RequestTest, ReconnectsOnceWhenTheDaemonWasReplaced) {
  const std::string address = FreshAddress();
  std::optional<FakeDaemonProcess> daemon;
  daemon.emplace(address, std::vector<std::string>{});
  const ClientPtr client = OpenClient(address);
  daemon.emplace(address, std::vector<std::string>{});
  char* answer = nullptr;
  ASSERT_EQ(hr_request(client.get(), HR_STATS, "{}", kTimeoutMs, &answer, nullptr), HR_OK)
      << hr_last_error();
  EXPECT_EQ(std::string(answer), "{\"pid\": " + std::to_string(daemon->pid()) + "}");
  hr_free(answer);
}

TEST(RequestTest, IsMadeAgainUntilADaemonLivesToAnswerOrTheDeadline) {
  const int deaths = memfd_create("deaths", MFD_CLOEXEC);
  const std::string path = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(deaths);
  const ClientPtr client = OpenClient(FreshAddress(), FAKE_DAEMON, {"--deaths", path.c_str()});
  char* answer = nullptr;
  ASSERT_EQ(ftruncate(deaths, 7), 0);
  EXPECT_EQ(hr_request(client.get(), HR_DESCRIBE, "{}", kTimeoutMs, &answer, nullptr), HR_OK) << hr_last_error();
  EXPECT_EQ(lseek(deaths, 0, SEEK_END), 0);
  hr_free(answer);
  ASSERT_EQ(ftruncate(deaths, 100000), 0);
  EXPECT_EQ(hr_request(client.get(), HR_DESCRIBE, "{}", 300, &answer, nullptr), HR_DEADLINE_EXCEEDED);
  close(deaths);
}

TEST(RequestTest, AnAnswerThatComesTooLateIsNotTakenForTheNextOne) {
  const std::string address = FreshAddress();
  const FakeDaemonProcess daemon(address, {});
  const ClientPtr client = OpenClient(address);
  daemon.Signal(SIGSTOP);
  char* answer = nullptr;
  EXPECT_EQ(hr_request(client.get(), HR_SAMPLE, "{}", 50, &answer, nullptr), HR_DEADLINE_EXCEEDED);
  EXPECT_EQ(answer, nullptr);
  EXPECT_THAT(hr_last_error(), HasSubstr("50 ms"));
  daemon.Signal(SIGCONT);
  int fd = -2;
  ASSERT_EQ(hr_request(client.get(), HR_DESCRIBE, "{}", kTimeoutMs, &answer, &fd), HR_OK)
      << hr_last_error();
  EXPECT_STREQ(answer, "{\"asked\": {}}");
  EXPECT_EQ(fd, -1);
  hr_free(answer);
}

TEST(RequestTest, OnlyRequestsOfJsonAreAllowed) {
  const std::string address = FreshAddress();
  const FakeDaemonProcess daemon(address, {});
  const ClientPtr client = OpenClient(address);
  char* answer = nullptr;
  EXPECT_EQ(hr_request(client.get(), HR_OPEN, "{}", kTimeoutMs, &answer, nullptr),
            HR_INVALID_ARGUMENT);
  const std::string huge(HR_MAX_REQUEST_BYTES + 1, ' ');
  EXPECT_EQ(hr_request(client.get(), HR_STATS, huge.c_str(), kTimeoutMs, &answer, nullptr),
            HR_INVALID_ARGUMENT);
}

TEST(RequestTest, ManyThreadsShareOneClient) {
  const std::string address = FreshAddress();
  const FakeDaemonProcess daemon(address, {});
  const ClientPtr client = OpenClient(address);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string json = "{\"n\": " + std::to_string(t) + "}";
      for (int i = 0; i < 100; ++i) {
        char* answer = nullptr;
        ASSERT_EQ(hr_request(client.get(), HR_DESCRIBE, json.c_str(), kTimeoutMs, &answer, nullptr),
                  HR_OK);
        EXPECT_EQ(std::string(answer), "{\"asked\": " + json + "}");
        hr_free(answer);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace headrace
