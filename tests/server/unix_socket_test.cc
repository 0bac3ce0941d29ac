#include "server/unix_socket.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/temporary_folder.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

TEST(ListeningSocket, HasItsModeAndMakesItsFolder) {
  testing::TemporaryFolder folder;
  const std::string path = folder.File("run/a.sock");
  const auto socket = ListeningSocket::Bind(path, 0640);
  ASSERT_TRUE(socket.ok()) << socket.status();
  struct stat info = {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0640u);
  EXPECT_TRUE(S_ISSOCK(info.st_mode));
  EXPECT_TRUE(ConnectTo(path).ok());
}

TEST(ListeningSocket, ReplacesAFileWhereNobodyListens) {
  testing::TemporaryFolder folder;
  const std::string path = folder.File("a.sock");
  { ASSERT_TRUE(ListeningSocket::Bind(path, 0600).ok()); }  // closed, not removed: as after a kill
  EXPECT_TRUE(absl::IsUnavailable(ConnectTo(path).status()));
  const auto socket = ListeningSocket::Bind(path, 0600);
  ASSERT_TRUE(socket.ok()) << socket.status();
  EXPECT_TRUE(ConnectTo(path).ok());
}

TEST(ListeningSocket, DoesNotReplaceADaemonThatListens) {
  testing::TemporaryFolder folder;
  for (const std::string& path : {folder.File("a.sock"), absl::StrCat("@headrace-test-", getpid())}) {
    const auto first = ListeningSocket::Bind(path, 0600);
    ASSERT_TRUE(first.ok()) << first.status();
    const auto second = ListeningSocket::Bind(path, 0600);
    EXPECT_TRUE(absl::IsAlreadyExists(second.status())) << second.status();
    EXPECT_THAT(std::string(second.status().message()), HasSubstr("a daemon listens there already"));
    EXPECT_TRUE(ConnectTo(path).ok());
  }
}

TEST(ListeningSocket, DoesNotTakeAFullBacklogForADeadDaemon) {
  testing::TemporaryFolder folder;
  const std::string path = folder.File("a.sock");
  const auto first = ListeningSocket::Bind(path, 0600);
  ASSERT_TRUE(first.ok());
  listen(first->fd(), 0);
  std::vector<UniqueFd> waiting;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  for (;;) {
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
    if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) break;
    waiting.push_back(std::move(fd));
  }
  EXPECT_TRUE(absl::IsAlreadyExists(ListeningSocket::Bind(path, 0600).status()));
}

TEST(ListeningSocket, DoesNotReplaceWhatIsNoSocket) {
  testing::TemporaryFolder folder;
  const std::string path = folder.Write("file", "precious");
  EXPECT_TRUE(absl::IsAlreadyExists(ListeningSocket::Bind(path, 0600).status()));
  EXPECT_EQ(folder.Read("file"), "precious");
}

TEST(ListeningSocket, IsGivenToOneOfManyThatWantIt) {
  testing::TemporaryFolder folder;
  const std::string path = folder.File("a.sock");
  { ASSERT_TRUE(ListeningSocket::Bind(path, 0600).ok()); }
  std::atomic<int> winners = 0;
  std::vector<absl::StatusOr<ListeningSocket>> kept(8);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      kept[i] = ListeningSocket::Bind(path, 0600);
      if (kept[i].ok()) ++winners;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(winners, 1);
}

TEST(ListeningSocket, RemovesOnlyItsOwnFile) {
  testing::TemporaryFolder folder;
  const std::string path = folder.File("a.sock");
  auto first = std::make_unique<ListeningSocket>(*ListeningSocket::Bind(path, 0600));
  std::filesystem::remove(path);
  const auto second = ListeningSocket::Bind(path, 0600);
  ASSERT_TRUE(second.ok());
  first->RemoveFile();
  EXPECT_TRUE(ConnectTo(path).ok());
  second->RemoveFile();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(ListeningSocket, RefusesPathsThatDoNotFit) {
  EXPECT_TRUE(absl::IsInvalidArgument(ListeningSocket::Bind("/tmp/" + std::string(200, 'x'), 0600).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ListeningSocket::Bind("", 0600).status()));
  EXPECT_FALSE(ListeningSocket::Bind("/proc/nothing/a.sock", 0600).ok());
}

TEST(ListeningSocket, AdoptsOnlyListeningSockets) {
  testing::TemporaryFolder folder;
  EXPECT_TRUE(absl::IsInvalidArgument(ListeningSocket::Adopt(open("/dev/null", O_RDONLY)).status()));
  const auto socket = ListeningSocket::Bind(folder.File("a.sock"), 0600);
  EXPECT_TRUE(ListeningSocket::Adopt(dup(socket->fd())).ok());
}

TEST(AccessList, AdmitsOwnUserRootAndWhoIsNamed) {
  const auto peer = [](uid_t uid, std::vector<gid_t> groups) { return Peer{1, uid, std::move(groups)}; };
  const AccessList list = *AccessList::Parse({"uid:77001", "gid:88001", "daemon", "@daemon"});
  EXPECT_TRUE(list.Admits(peer(geteuid(), {})));
  EXPECT_TRUE(list.Admits(peer(0, {})));
  EXPECT_TRUE(list.Admits(peer(77001, {5})));
  EXPECT_TRUE(list.Admits(peer(4242, {5, 88001})));
  EXPECT_TRUE(list.Admits(peer(1, {})));  // daemon
  EXPECT_FALSE(list.Admits(peer(77002, {5, 77001})));
  EXPECT_FALSE(list.Admits(peer(88001, {})));
  EXPECT_TRUE(AccessList::OwnUser().Admits(peer(geteuid(), {})));
  EXPECT_FALSE(AccessList::OwnUser().Admits(peer(geteuid() + 1, {0})));
}

TEST(AccessList, RefusesNamesThatNobodyHas) {
  for (const char* entry : {"uid:x", "uid:-1", "nobody-has-this-name", "@nobody-has-this-name", "gid:99999999999"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(AccessList::Parse({entry}).status())) << entry;
  }
}

TEST(Peer, IsThisProcessAtBothEndsOfAPair) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const UniqueFd first(ends[0]), second(ends[1]);
  const auto peer = ReadPeer(first.get());
  ASSERT_TRUE(peer.ok());
  EXPECT_EQ(peer->pid, getpid());
  EXPECT_EQ(peer->uid, geteuid());
  const UniqueFd pidfd = OpenPeerPidfd(first.get(), *peer);
  EXPECT_TRUE(pidfd.valid());
  EXPECT_FALSE(IsDead(pidfd.get()));
}

}  // namespace
}  // namespace headrace
