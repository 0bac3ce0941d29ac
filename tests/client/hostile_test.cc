// A daemon that lies: an error each time, never a crash and never memory that is not the ring's.
#include "tests/client/client_fixture.h"

namespace headrace {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

int OpenHostile(const std::string& lie, int timeout_ms) {
  const std::string address = FreshAddress();
  const FakeDaemonProcess daemon(address, {"--hostile", lie});
  const ClientPtr client = OpenClient(address);
  hr_session* session = nullptr;
  const int code =
      hr_session_open(client.get(), SpecJson().c_str(), nullptr, 0, 0, timeout_ms, &session);
  EXPECT_EQ(session, nullptr);
  hr_session_close(session);
  return code;
}

class MalformedOpenAnswerTest : public testing::TestWithParam<const char*> {};

TEST_P(MalformedOpenAnswerTest, IsAnErrorAtOnce) {
  EXPECT_EQ(OpenHostile(GetParam(), kTimeoutMs), HR_INTERNAL);
  EXPECT_THAT(hr_last_error(), HasSubstr("answer to OPEN"));
}

INSTANTIATE_TEST_SUITE_P(Lies, MalformedOpenAnswerTest,
                         testing::Values("short", "long", "slots-none", "slots-many", "fields-many",
                                         "batch-none", "field-offset", "field-offset-wraps",
                                         "field-shape", "field-stride", "field-dims", "field-type",
                                         "field-name", "text-short", "report-offset", "slot-bytes",
                                         "device-bytes", "device-bytes-odd", "device-bytes-few",
                                         "device-field", "device-text", "hash-endless", "no-memfd", "memfd-small",
                                         "memfd-unsealed", "socket-as-memfd"));

class MalformedFrameTest : public testing::TestWithParam<const char*> {};

TEST_P(MalformedFrameTest, IsAnErrorAtOnce) {
  EXPECT_EQ(OpenHostile(GetParam(), kTimeoutMs), HR_INTERNAL);
  EXPECT_THAT(hr_last_error(), HasSubstr("malformed"));
}

INSTANTIATE_TEST_SUITE_P(Lies, MalformedFrameTest,
                         testing::Values("magic", "type", "id", "length"));

TEST(HostileTest, AnAnswerThatEndsInTheMiddleIsTriedAgainUntilTheDeadline) {
  EXPECT_EQ(OpenHostile("half", 300), HR_DEADLINE_EXCEEDED);
  EXPECT_THAT(hr_last_error(), HasSubstr("closed the connection"));
}

TEST(HostileTest, AnotherLayoutVersionIsAClearError) {
  EXPECT_EQ(OpenHostile("layout-version", kTimeoutMs), HR_FAILED_PRECONDITION);
  EXPECT_THAT(hr_last_error(), HasSubstr("layout version 99"));
}

TEST(HostileTest, MoreDescriptorsThanOneAreClosed) {
  const std::string address = FreshAddress();
  const FakeDaemonProcess daemon(address, {"--hostile", "three-memfds"});
  const ClientPtr client = OpenClient(address);
  const int before = dup(0);
  close(before);
  for (int i = 0; i < 10; ++i) {
    const SessionPtr session = OpenSession(client.get());
    Batch batch;
    EXPECT_EQ(batch.Next(session.get()), HR_OK);
  }
  const int after = dup(0);
  close(after);
  EXPECT_EQ(after, before);
}

class HostileRingTest : public testing::Test {
 protected:
  int RunUntilError(const std::string& lie) {
    const std::string address = FreshAddress();
    const FakeDaemonProcess daemon(address, {"--hostile", lie});
    const ClientPtr client = OpenClient(address);
    const SessionPtr session = OpenSession(client.get());
    Batch batch;
    for (int step = 0; step < 50; ++step) {
      const int code = batch.Next(session.get());
      if (code != HR_OK) return code;
      EXPECT_EQ(batch.index(0), 4 * step);  // whatever happens: none lost, none twice
    }
    hr_session_stats stats;
    hr_session_get_stats(session.get(), &stats);
    reconnections_ = stats.reconnections;
    return HR_OK;
  }
  uint64_t reconnections_ = 0;
};

TEST_F(HostileRingTest, ATicketThatIsPassedOverMeansReconnectingAtOnce) {
  EXPECT_EQ(RunUntilError("skip-ticket"), HR_OK);
  EXPECT_GE(reconnections_, 20u);  // each session of this daemon gives two batches
}

TEST_F(HostileRingTest, ABatchLongerThanItsSlotIsNeverHandedOut) {
  EXPECT_EQ(RunUntilError("long-batch"), HR_INTERNAL);
  EXPECT_THAT(hr_last_error(), HasSubstr("5 samples"));
}

TEST(HostileTest, AReportWithoutAnEndIsCut) {
  const std::string address = FreshAddress();
  const FakeDaemonProcess daemon(address, {"--hostile", "endless-report", "--bad-at", "0"});
  const ClientPtr client = OpenClient(address);
  const SessionPtr session = OpenSession(client.get());
  Batch batch;
  EXPECT_EQ(batch.Next(session.get()), HR_BAD_SAMPLE);
  EXPECT_EQ(std::string(hr_last_error()), std::string(4096, 'x'));
}

}  // namespace
}  // namespace headrace
