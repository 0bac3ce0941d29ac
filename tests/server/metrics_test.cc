#include "server/metrics/metrics_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "tests/server/raw_client.h"
#include "tests/support/embedded_daemon.h"
#include "tests/support/tiny_dataset.h"

namespace headrace::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// A port that is free now; bound so long as the descriptor lives.
UniqueFd TakePort(int* port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = Loopback(0);
  socklen_t length = sizeof(address);
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  *port = ntohs(address.sin_port);
  return fd;
}

std::string Get(int port, const std::string& path) {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = Loopback(port);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return "no connection";
  const std::string request = "GET " + path + " HTTP/1.0\r\n\r\n";
  EXPECT_EQ(send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL), static_cast<ssize_t>(request.size()));
  std::string answer;
  char part[4096];
  for (ssize_t n; (n = recv(fd.get(), part, sizeof(part), 0)) > 0;) answer.append(part, static_cast<size_t>(n));
  return answer;
}

TEST(Metrics, AreServedOverHttpOnLoopback) {
  const TinyDataset dataset({.samples = 20});
  Settings settings;
  settings.data = {dataset.dir()};
  { const UniqueFd free = TakePort(&settings.metrics_port); }
  EmbeddedDaemon daemon(settings);
  RawSession session(daemon.socket(), SmallSpec(dataset.dir()));
  session.WaitFor(session.answer().first_ticket);
  const std::string answer = Get(settings.metrics_port, "/metrics");
  EXPECT_THAT(answer, HasSubstr("200 OK"));
  EXPECT_THAT(answer, HasSubstr("headrace_sessions 1\n"));
  EXPECT_THAT(answer, HasSubstr("headrace_decode_threads 2\n"));
  EXPECT_THAT(answer, HasSubstr("headrace_decode_threads_in_use "));
  EXPECT_THAT(answer, HasSubstr("headrace_host_memory_bytes 268435456\n"));
  EXPECT_THAT(answer, HasSubstr("# TYPE headrace_samples_total counter\n"));
  EXPECT_THAT(answer, HasSubstr(absl::StrCat("headrace_session_slots{session=\"", session.answer().session_id, "\"")));
  EXPECT_THAT(Get(settings.metrics_port, "/else"), HasSubstr("404"));
}

TEST(Metrics, SayWhenTheirPortIsTaken) {
  TemporaryFolder folder;
  Settings settings;
  settings.data = {folder.path()};
  settings.socket = folder.File("a.sock");
  const UniqueFd taken = TakePort(&settings.metrics_port);
  ASSERT_EQ(listen(taken.get(), 1), 0);
  ASSERT_TRUE(CompleteSettings(&settings).ok());
  const auto log = Log::Open(folder.File("log"), LogLevel::kInfo);
  const auto daemon = Daemon::Start(settings, -1, log->get());
  EXPECT_TRUE(absl::IsUnavailable(daemon.status())) << daemon.status();
  EXPECT_THAT(std::string(daemon.status().message()), HasSubstr(absl::StrCat(settings.metrics_port)));
}

}  // namespace
}  // namespace headrace::testing
