#include "server/rpc/rpc_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "server/rpc/rpc_client.h"
#include "tests/server/raw_client.h"
#include "tests/support/embedded_daemon.h"
#include "tests/support/tiny_dataset.h"

namespace headrace::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr int kTimeoutMs = 30000;

class RpcTest : public ::testing::Test {
 protected:
  std::unique_ptr<RpcClient> Connect() {
    auto client = RpcClient::Connect(daemon_.socket());
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

  TinyDataset dataset_{{.samples = 50}};
  EmbeddedDaemon daemon_{dataset_.dir()};
};

TEST_F(RpcTest, ItsHealthIsServing) { EXPECT_TRUE(Connect()->CheckHealth(kTimeoutMs).ok()); }

TEST_F(RpcTest, StatsAreThoseOfTheSocket) {
  RawSession session(daemon_.socket(), SmallSpec(dataset_.dir()));
  for (uint32_t i = 0; i < 4; ++i) session.WaitFor(session.answer().first_ticket + i);
  const auto client = Connect();
  const absl::StatusOr<ServiceStats> stats = client->Stats(kTimeoutMs);
  ASSERT_TRUE(stats.ok()) << stats.status();
  RawClient control(daemon_.socket());
  control.Hello();
  const Json json = control.Request(HR_STATS, Json::object()).json();
  EXPECT_EQ(stats->pid, getpid());
  EXPECT_EQ(stats->version, json["version"]);
  EXPECT_EQ(stats->pipeline.simd_target, json["simd_target"]);
  EXPECT_EQ(stats->pipeline.samples, json["samples"]);
  EXPECT_EQ(stats->pipeline.host_memory_used, json["host_memory_used"]);
  ASSERT_EQ(stats->sessions.size(), 1u);
  EXPECT_EQ(stats->sessions[0].stats.id, session.answer().session_id);
  EXPECT_EQ(stats->sessions[0].stats.batches, json["sessions"][0]["batches"]);
  EXPECT_EQ(stats->sessions[0].stats.cursor.position, json["sessions"][0]["position"]);
  EXPECT_EQ(stats->sessions[0].pid, getpid());
}

TEST_F(RpcTest, DescribeAndAuditAreThoseOfTheSocket) {
  const auto client = Connect();
  RawClient control(daemon_.socket());
  control.Hello();
  const auto description = client->Describe(dataset_.dir(), kTimeoutMs);
  ASSERT_TRUE(description.ok()) << description.status();
  EXPECT_EQ(Json::parse(*description), control.Request(HR_DESCRIBE, Json{{"dataset", dataset_.dir()}}).json());
  EXPECT_TRUE(absl::IsPermissionDenied(client->Describe("/etc", kTimeoutMs).status()));

  const Json spec = SmallSpec(dataset_.dir());
  const auto audit = client->Audit(spec.dump(), Cursor{1, 4}, 3, kTimeoutMs);
  ASSERT_TRUE(audit.ok()) << audit.status();
  const Json body = {{"spec", spec}, {"epoch", 1}, {"position", 4}, {"step", 3}};
  EXPECT_EQ(Json::parse(*audit), control.Request(HR_AUDIT, body).json());
  EXPECT_TRUE(absl::IsInvalidArgument(client->Audit("{", Cursor{}, 0, kTimeoutMs).status()));
}

TEST_F(RpcTest, AnOperatorClosesASessionWhichMayOpenAgain) {
  RawSession session(daemon_.socket(), SmallSpec(dataset_.dir()));
  const auto client = Connect();
  EXPECT_TRUE(absl::IsNotFound(client->CloseSession(session.answer().session_id + 1, kTimeoutMs)));
  ASSERT_TRUE(client->CloseSession(session.answer().session_id, kTimeoutMs).ok());
  while (session.connection().ReadBell()) {
  }
  EXPECT_THAT(std::string(session.control()->daemon.reason), HasSubstr("operator"));
  while (!client->Stats(kTimeoutMs)->sessions.empty()) usleep(1000);
  RawSession again(daemon_.socket(), SmallSpec(dataset_.dir()));
  EXPECT_GE(again.WaitFor(again.answer().first_ticket), 0);
}

TEST_F(RpcTest, ManyClientsAreServed) {
  std::vector<std::unique_ptr<RpcClient>> clients;
  for (int i = 0; i < 20; ++i) clients.push_back(Connect());
  for (const auto& client : clients) EXPECT_TRUE(client->Stats(kTimeoutMs).ok());
}

TEST_F(RpcTest, GarbageDoesNotStopIt) {
  RawClient garbage(daemon_.socket() + ".grpc");
  garbage.Send(std::string(100000, 'x'));
  EXPECT_TRUE(Connect()->CheckHealth(kTimeoutMs).ok());
}

TEST_F(RpcTest, ShutdownEndsTheDaemonWithItsReason) {
  RawSession session(daemon_.socket(), SmallSpec(dataset_.dir()));
  const auto client = Connect();
  ASSERT_TRUE(client->Shutdown("maintenance", kTimeoutMs).ok());
  EXPECT_EQ(daemon_.Wait(), "maintenance");
  EXPECT_STREQ(session.control()->daemon.reason, "maintenance");
  EXPECT_FALSE(std::filesystem::exists(daemon_.socket() + ".grpc"));
}

TEST_F(RpcTest, AConnectionOutlivesNoDaemon) {
  const auto client = Connect();
  ASSERT_TRUE(client->Stats(kTimeoutMs).ok());
  daemon_.Stop();
  EXPECT_TRUE(absl::IsUnavailable(client->Stats(kTimeoutMs).status()));
}

}  // namespace
}  // namespace headrace::testing
