// What a daemon does with bytes that are not what they should be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <random>

#include "absl/strings/str_cat.h"
#include "tests/server/raw_client.h"
#include "tests/support/embedded_daemon.h"
#include "tests/support/tiny_dataset.h"

namespace headrace::testing {
namespace {

using ::testing::HasSubstr;

class FramingTest : public ::testing::Test {
 protected:
  void ExpectServing() { EXPECT_EQ(RawClient(daemon_.socket()).Hello().protocol_version, HR_PROTOCOL_VERSION); }

  TemporaryFolder root_;
  EmbeddedDaemon daemon_{root_.path()};
};

TEST_F(FramingTest, HelloTellsVersionsAndPid) {
  const hr_hello_answer answer = RawClient(daemon_.socket()).Hello();
  EXPECT_EQ(answer.protocol_version, HR_PROTOCOL_VERSION);
  EXPECT_EQ(answer.order_version, kOrderVersion);
  EXPECT_EQ(answer.pixel_version, kPixelVersion);
  EXPECT_EQ(answer.daemon_pid, getpid());
  EXPECT_STRNE(answer.version, "");
}

TEST_F(FramingTest, AnotherProtocolVersionIsRefusedWithBothVersions) {
  RawClient client(daemon_.socket());
  const Frame answer = client.Request(HR_HELLO, BytesOf(hr_hello{HR_PROTOCOL_VERSION + 1, 0}));
  EXPECT_EQ(answer.error_code(), static_cast<uint32_t>(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(answer.error_message(), HasSubstr(absl::StrCat(HR_PROTOCOL_VERSION + 1)));
  EXPECT_TRUE(client.Ended());
}

TEST_F(FramingTest, AWrongMagicEndsTheConnection) {
  RawClient client(daemon_.socket());
  client.Hello();
  client.Send(Bytes(HR_STATS, 1, "{}", HR_MAGIC + 1));
  EXPECT_TRUE(client.Ended());
  ExpectServing();
}

TEST_F(FramingTest, AnUnknownTypeEndsTheConnection) {
  for (const uint32_t type : {0u, HR_DEVICE_MEMORY + 1u, uint32_t{HR_ERROR}, uint32_t{HR_HELLO + HR_ANSWER}, 0xFFFFFFFFu}) {
    RawClient client(daemon_.socket());
    client.Hello();
    client.Send(Bytes(type, 1, ""));
    EXPECT_TRUE(client.Ended()) << type;
  }
  ExpectServing();
}

TEST_F(FramingTest, ALengthAboveTheBoundEndsTheConnectionBeforeTheBodyIsRead) {
  RawClient client(daemon_.socket());
  client.Hello();
  client.Send(BytesOf(hr_header{HR_MAGIC, HR_STATS, HR_MAX_REQUEST_BYTES + 1, 1}));
  EXPECT_TRUE(client.Ended());
  ExpectServing();
}

TEST_F(FramingTest, ARequestOfTheLargestSizeIsAnswered) {
  RawClient client(daemon_.socket());
  client.Hello();
  std::string body = "{";
  body.resize(HR_MAX_REQUEST_BYTES - 1, ' ');
  body += "}";
  EXPECT_EQ(client.Request(HR_STATS, body).header.type, uint32_t{HR_STATS + HR_ANSWER});
}

TEST_F(FramingTest, FramesMayArriveByteByByteAndManyAtOnce) {
  RawClient client(daemon_.socket());
  for (const char byte : Bytes(HR_HELLO, 7, BytesOf(hr_hello{HR_PROTOCOL_VERSION, 0}))) client.Send(std::string(1, byte));
  EXPECT_EQ(client.Read()->header.request_id, 7u);
  std::string many;
  for (uint32_t id = 0; id < 500; ++id) many += Bytes(HR_STATS, id, "{}");
  client.Send(many);
  for (uint32_t id = 0; id < 500; ++id) EXPECT_EQ(client.Read()->header.request_id, id);
}

TEST_F(FramingTest, TheFirstRequestMustBeHelloOrOpen) {
  for (const uint32_t type : {HR_STATS, HR_DESCRIBE, HR_SEEK}) {
    RawClient client(daemon_.socket());
    EXPECT_EQ(client.Request(type, std::string("{}")).error_code(),
              static_cast<uint32_t>(absl::StatusCode::kFailedPrecondition));
    EXPECT_TRUE(client.Ended());
  }
}

TEST_F(FramingTest, BodiesThatAreNoJsonObjectsAreInvalidArguments) {
  RawClient client(daemon_.socket());
  client.Hello();
  const std::string deep(HR_MAX_REQUEST_BYTES / 2, '[');
  const std::string deep_value = "{\"spec\": " + deep.substr(20) + std::string(deep.size() - 20, ']') + ", \"step\": 0}";
  for (const std::string& body : {std::string(), std::string("null"), std::string("[]"), std::string("{"),
                                  std::string("{\"session\": \"\xff\"}"), std::string("{\"unknown\": 1}"),
                                  std::string("{\"session\": -1}"), std::string("{\"session\": 1.5}"), deep, deep_value}) {
    for (const uint32_t type : {HR_STATS, HR_DESCRIBE, HR_SAMPLE, HR_AUDIT}) {
      if (type == HR_STATS || body.find("session") == std::string::npos) {
        EXPECT_EQ(client.Request(type, body).error_code(), static_cast<uint32_t>(absl::StatusCode::kInvalidArgument))
            << type << " " << body.substr(0, 40);
      }
    }
  }
  EXPECT_EQ(client.Request(HR_SEEK, std::string("short")).error_code(),
            static_cast<uint32_t>(absl::StatusCode::kInvalidArgument));
}

TEST_F(FramingTest, GarbageNeverStopsTheDaemon) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    RawClient client(daemon_.socket());
    std::string bytes;
    if (random() % 2) bytes += Bytes(HR_HELLO, 1, BytesOf(hr_hello{HR_PROTOCOL_VERSION, 0}));
    const uint32_t type = random() % 9;
    std::string body(random() % 300, '\0');
    for (char& c : body) c = static_cast<char>(random());
    std::string frame = Bytes(type, random(), body);
    for (int flips = random() % 4; flips > 0; --flips) frame[random() % frame.size()] ^= 1 << random() % 8;
    frame.resize(random() % 4 == 0 ? random() % frame.size() : frame.size());
    client.Send(bytes + frame);
    shutdown(client.fd(), SHUT_WR);  // so that a frame that is not complete ends too
    while (client.Read()) {
    }
  }
  ExpectServing();
}

TEST(FrameDeadline, AHalfSentFrameAndSilenceBeforeTheFirstEndTheConnection) {
  TemporaryFolder root;
  Settings settings;
  settings.data = {root.path()};
  settings.frame_timeout_ms = 100;
  EmbeddedDaemon daemon(settings);
  RawClient silent(daemon.socket()), half(daemon.socket()), idle(daemon.socket());
  idle.Hello();
  half.Hello();
  half.Send(Bytes(HR_STATS, 1, "{}").substr(0, 17));
  EXPECT_TRUE(half.Ended());
  EXPECT_TRUE(silent.Ended());
  EXPECT_EQ(idle.Request(HR_STATS, std::string("{}")).error_code(), 0u);  // between frames silence is fine
}

TEST(FrameDeadline, AnAnswerThatIsNotTakenEndsTheConnection) {
  TemporaryFolder root;
  Settings settings;
  settings.data = {root.path()};
  settings.frame_timeout_ms = 100;
  EmbeddedDaemon daemon(settings);
  RawClient client(daemon.socket());
  client.Hello();
  const timeval timeout = {20, 0};
  setsockopt(client.fd(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  // Never reads: the daemon's answers, then its requests, fill the buffers; at last the daemon hangs up.
  while (client.Send(Bytes(HR_STATS, 1, "{}"))) {
  }
  EXPECT_THAT(daemon.log(), HasSubstr("waited too long for an answer to be taken"));
}

TEST(ConnectionLimit, MoreConnectionsAreRefusedWithAReason) {
  TemporaryFolder root;
  Settings settings;
  settings.data = {root.path()};
  settings.max_connections = 3;
  EmbeddedDaemon daemon(settings);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<RawClient>(daemon.socket()));
    clients.back()->Hello();
  }
  RawClient fourth(daemon.socket());
  const std::optional<Frame> refusal = fourth.Read();
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->error_code(), static_cast<uint32_t>(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(refusal->error_message(), HasSubstr("3 connections"));
  EXPECT_TRUE(fourth.Ended());
  clients.pop_back();
  for (;;) {  // there is room as soon as the daemon has seen the end of the third
    RawClient next(daemon.socket());
    if (!next.Send(Bytes(HR_HELLO, 1, BytesOf(hr_hello{HR_PROTOCOL_VERSION, 0})))) continue;
    const std::optional<Frame> answer = next.Read();
    if (answer && answer->error_code() == 0) break;
  }
}

TEST(ManyConnections, AreServedTogether) {
  TemporaryFolder root;
  EmbeddedDaemon daemon(root.path());
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 300; ++i) clients.push_back(std::make_unique<RawClient>(daemon.socket()));
  for (auto& client : clients) client->Hello();
  for (auto& client : clients) client->Send(Bytes(HR_STATS, 5, "{}"));
  for (auto& client : clients) EXPECT_EQ(client->Read()->header.request_id, 5u);
}

}  // namespace
}  // namespace headrace::testing
