#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>

#include "tests/server/raw_client.h"
#include "tests/support/embedded_daemon.h"
#include "tests/support/fork_server.h"
#include "tests/support/tiny_dataset.h"

namespace headrace::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class SessionsTest : public ::testing::Test {
 protected:
  SessionsTest() { control_.Hello(); }

  Json Stats() { return control_.Request(HR_STATS, Json::object()).json(); }
  // The daemon learns of ends by itself; the test asks until it has.
  void WaitForSessions(size_t count) {
    while (Stats()["sessions"].size() != count) usleep(1000);
  }
  Frame Open(const Json& body) { return RawClient(daemon_.socket()).Request(HR_OPEN, body); }

  ForkServer forks_;  // before there are threads
  TinyDataset dataset_{{.samples = 50}};
  EmbeddedDaemon daemon_{dataset_.dir()};
  RawClient control_{daemon_.socket()};
};

TEST_F(SessionsTest, OpenAnswersWithGeometryAndASealedRing) {
  RawClient connection(daemon_.socket());
  const Frame frame = connection.Request(HR_OPEN, Json{{"spec", SmallSpec(dataset_.dir())}, {"position", 8}});
  const auto answer = frame.As<hr_open_answer>();
  EXPECT_EQ(answer.dataset_size, 50u);
  EXPECT_EQ(std::string(answer.dataset_hash), dataset_.Open()->hash());
  EXPECT_EQ(answer.num_slots, 4u);
  EXPECT_EQ(answer.batch_size, 4u);
  EXPECT_EQ(answer.num_fields, 3u);
  EXPECT_STREQ(answer.fields[0].name, "image");
  EXPECT_STREQ(answer.fields[1].name, "label");
  EXPECT_STREQ(answer.fields[2].name, "index");
  EXPECT_EQ(answer.memfd_bytes, HR_CONTROL_BYTES + 4 * answer.slot_bytes);
  struct stat info = {};
  ASSERT_EQ(fstat(frame.fd.get(), &info), 0);
  EXPECT_EQ(static_cast<uint64_t>(info.st_size), answer.memfd_bytes);
  EXPECT_EQ(fcntl(frame.fd.get(), F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

TEST_F(SessionsTest, BatchesComeInOrderAcrossEpochsWithBellsForWhoWaits) {
  RawSession session(daemon_.socket(), SmallSpec(dataset_.dir()));
  const auto& index = session.answer().fields[2];
  uint64_t expected = 0;
  for (uint32_t step = 0; step < 60; ++step) {
    const int slot = session.WaitFor(session.answer().first_ticket + step);
    ASSERT_GE(slot, 0);
    const auto& line = session.control()->slots[slot];
    EXPECT_EQ(line.epoch, step / 13);
    const auto* numbers = reinterpret_cast<const int64_t*>(session.slot(slot) + index.offset);
    for (uint32_t i = 0; i < line.length; ++i) EXPECT_EQ(numbers[i], static_cast<int64_t>(expected++ % 50));
    session.Release(slot);
  }
}

TEST_F(SessionsTest, BytesAfterOpenAreBellsWhateverTheySay) {
  RawSession session(daemon_.socket(), SmallSpec(dataset_.dir()));
  session.connection().Send(Bytes(HR_OPEN, 1, Json{{"spec", SmallSpec(dataset_.dir())}}.dump()));
  session.connection().Send(std::string(300000, '\xff'));
  EXPECT_GE(session.WaitFor(session.answer().first_ticket), 0);
  EXPECT_EQ(Stats()["sessions"].size(), 1u);
}

TEST_F(SessionsTest, OpenChecksTheCursorAndTheHash) {
  const Json spec = SmallSpec(dataset_.dir());
  const std::string hash = dataset_.Open()->hash();
  EXPECT_EQ(Open({{"spec", spec}, {"dataset_hash", hash}, {"epoch", 2}, {"position", 50}}).error_code(), 0u);
  EXPECT_EQ(Open({{"spec", spec}, {"position", 51}}).error_code(), Code(absl::StatusCode::kOutOfRange));
  const Frame changed = Open({{"spec", spec}, {"dataset_hash", std::string(32, '0')}});
  EXPECT_EQ(changed.error_code(), Code(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(changed.error_message(), HasSubstr("changed: " + std::string(32, '0') + " → " + hash));
  EXPECT_EQ(Open({{"spec", spec}, {"dataset_hash", 5}}).error_code(), Code(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(Open({{"spec", 5}}).error_code(), Code(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(Open(Json::object()).error_code(), Code(absl::StatusCode::kInvalidArgument));
}

TEST_F(SessionsTest, OpenChecksWhatTheClientCounted) {
  Json spec = SmallSpec(dataset_.dir());
  const auto code = [&](const char* counted) {
    return Open({{"spec", spec}, {"counted_bad", Json::parse(counted)}}).error_code();
  };
  EXPECT_EQ(code("[]"), 0u);
  EXPECT_EQ(code("[3]"), Code(absl::StatusCode::kInvalidArgument)) << "there is no max_bad";
  spec["on_bad_sample"] = "skip";
  spec["max_bad"] = 2;
  EXPECT_EQ(code("[3, 49, 3]"), 0u);
  for (const char* wrong : {"[1, 2, 3]", "[50]", "[-1]", "[1.5]", "[\"3\"]", "3", "null", "{\"a\": 1}", "[[1]]"}) {
    EXPECT_EQ(code(wrong), Code(absl::StatusCode::kInvalidArgument)) << wrong;
  }
}

TEST_F(SessionsTest, ARefusedOpenEndsItsConnection) {
  RawClient connection(daemon_.socket());
  EXPECT_NE(connection.Request(HR_OPEN, Json::object()).error_code(), 0u);
  EXPECT_TRUE(connection.Ended());
}

TEST_F(SessionsTest, MoreMemoryThanThereIsGivesTheNumbers) {
  Json spec = SmallSpec(dataset_.dir());
  spec["batch_size"] = 65536;
  spec["dtype"] = "float32";
  spec["transform"][0]["size"] = {64, 64};
  const Frame answer = Open({{"spec", spec}});
  EXPECT_EQ(answer.error_code(), Code(absl::StatusCode::kResourceExhausted)) << answer.error_message();
  EXPECT_EQ(Stats()["host_memory_used"], 0);
}

TEST_F(SessionsTest, SeekMovesTheSessionOfTheSameProcess) {
  RawSession session(daemon_.socket(), SmallSpec(dataset_.dir()));
  session.WaitFor(session.answer().first_ticket);
  const Frame answer = control_.Request(HR_SEEK, BytesOf(hr_seek{session.answer().session_id, 5, 20}));
  ASSERT_EQ(answer.error_code(), 0u) << answer.error_message();
  const uint32_t first = answer.As<hr_seek_answer>().first_ticket;
  for (uint32_t i = 0; i < session.answer().num_slots; ++i) {
    if (session.control()->slots[i].ready.load() < first) session.Release(static_cast<int>(i));
  }
  const int slot = session.WaitFor(first);
  EXPECT_EQ(session.control()->slots[slot].epoch, 5u);
  EXPECT_EQ(session.control()->slots[slot].position, 20u);
}

TEST_F(SessionsTest, SeekRefusesPositionsBehindTheEndAndUnknownSessions) {
  RawSession session(daemon_.socket(), SmallSpec(dataset_.dir()));
  const uint64_t id = session.answer().session_id;
  EXPECT_EQ(control_.Request(HR_SEEK, BytesOf(hr_seek{id, 0, 51})).error_code(), Code(absl::StatusCode::kOutOfRange));
  EXPECT_EQ(control_.Request(HR_SEEK, BytesOf(hr_seek{id + 1, 0, 0})).error_code(), Code(absl::StatusCode::kNotFound));
}

TEST_F(SessionsTest, SeekRefusesTheSessionOfAnotherProcess) {
  RawSession session(daemon_.socket(), SmallSpec(dataset_.dir()));
  const auto seek = [](const std::string& argument) {
    const Json told = Json::parse(argument);
    RawClient other(told["socket"].get<std::string>());
    other.Hello();
    return static_cast<int>(other.Request(HR_SEEK, BytesOf(hr_seek{told["session"], 0, 0})).error_code());
  };
  const Json told = {{"socket", daemon_.socket()}, {"session", session.answer().session_id}};
  EXPECT_EQ(WEXITSTATUS(forks_.Run(seek, told.dump())), static_cast<int>(Code(absl::StatusCode::kNotFound)));
}

TEST_F(SessionsTest, ClosingTheConnectionEndsTheSessionAndKeepsWhatIsMapped) {
  const uint64_t used = Stats()["host_memory_used"];
  {
    RawSession session(daemon_.socket(), SmallSpec(dataset_.dir()));
    const int slot = session.WaitFor(session.answer().first_ticket);
    const std::string before(reinterpret_cast<const char*>(session.slot(slot)), session.answer().error_offset);
    EXPECT_THAT(before, ::testing::Not(::testing::Each('\0')));
    session.connection().Close();
    WaitForSessions(0);
    usleep(300000);  // longer than the daemon watches a process that may be dying
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(session.slot(slot)), session.answer().error_offset), before);
  }
  while (Stats()["host_memory_used"] != used) usleep(1000);
}

// A trainer that is killed when it has a batch. Its child lives on, maps the ring, holds the socket or not, and says when the ring is
// empty.
int DieBesideAChild(const std::string& argument) {
  const Json told = Json::parse(argument);
  RawSession session(told["socket"].get<std::string>(), SmallSpec(told["dataset"]));
  session.WaitFor(session.answer().first_ticket);
  const int tell = open(told["tell"].get<std::string>().c_str(), O_WRONLY | O_CLOEXEC);
  if (fork() == 0) {
    if (!told["child_holds_socket"].get<bool>()) session.connection().Close();
    const auto* page = reinterpret_cast<const volatile uint64_t*>(session.control());
    pollfd test = {tell, 0, 0};
    while (*page != 0 && poll(&test, 1, 1) == 0) {  // the test is not gone
    }
    _exit(write(tell, "e", 1) == 1 ? 0 : 1);
  }
  return raise(SIGKILL);
}

TEST_F(SessionsTest, TheMemoryOfADeadProcessIsGoneThoughAChildMapsIt) {
  for (const bool child_holds_socket : {true, false}) {
    int tell[2];
    ASSERT_EQ(pipe2(tell, O_CLOEXEC), 0);
    const Json told = {{"socket", daemon_.socket()},
                       {"dataset", dataset_.dir()},
                       {"tell", "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(tell[1])},
                       {"child_holds_socket", child_holds_socket}};
    EXPECT_EQ(WTERMSIG(forks_.Run(DieBesideAChild, told.dump())), SIGKILL);
    WaitForSessions(0);
    while (Stats()["host_memory_used"] != 0) usleep(1000);
    char is_empty = 0;
    EXPECT_EQ(read(tell[0], &is_empty, 1), 1);
    for (const int fd : tell) close(fd);
  }
}

TEST_F(SessionsTest, AStopTellsEverySessionWhyBeforeItEndsTheConnections) {
  RawSession first(daemon_.socket(), SmallSpec(dataset_.dir())), second(daemon_.socket(), SmallSpec(dataset_.dir()));
  const int slot = first.WaitFor(first.answer().first_ticket);
  EXPECT_EQ(daemon_.Stop("out of petrol"), "out of petrol");
  for (RawSession* session : {&first, &second}) {
    while (session->connection().ReadBell()) {
    }
    EXPECT_EQ(session->control()->daemon.stopping.load(), 1u);
    EXPECT_STREQ(session->control()->daemon.reason, "out of petrol");
  }
  EXPECT_EQ(first.control()->slots[slot].ready.load(), first.answer().first_ticket);  // what was ready stays
  EXPECT_TRUE(control_.Ended());
  EXPECT_FALSE(std::filesystem::exists(daemon_.socket()));
  EXPECT_FALSE(std::filesystem::exists(daemon_.socket() + ".grpc"));
}

TEST_F(SessionsTest, ABadSampleIsLoggedOnceWithItsName) {
  dataset_.Damage(5);
  Json spec = SmallSpec(dataset_.dir());
  spec["on_bad_sample"] = "skip";
  RawSession session(daemon_.socket(), spec);
  for (uint32_t step = 0; step < 40; ++step) session.Release(session.WaitFor(session.answer().first_ticket + step));
  const std::string log = daemon_.log();
  const size_t at = log.find("bad sample: ");
  ASSERT_NE(at, std::string::npos) << log;
  EXPECT_THAT(log.substr(at, 200), HasSubstr("sample 5"));
  EXPECT_EQ(log.find("bad sample: ", at + 1), std::string::npos);
}

TEST(PrivateDaemon, EndsWithItsLastConnection) {
  const TinyDataset dataset({.samples = 20});
  Settings settings;
  settings.private_daemon = true;
  settings.socket = "@headrace-test-private-" + std::to_string(getpid());
  EmbeddedDaemon daemon(settings);
  {
    RawClient control(daemon.socket());
    control.Hello();
    RawSession session(daemon.socket(), SmallSpec(dataset.dir()));  // no roots: any path
    control.Close();
    EXPECT_GE(session.WaitFor(session.answer().first_ticket), 0);
    RawClient late(daemon.socket());
    EXPECT_EQ(late.Hello().daemon_pid, getpid());
  }
  EXPECT_EQ(daemon.Wait(), "its last client is gone");
}

}  // namespace
}  // namespace headrace::testing
