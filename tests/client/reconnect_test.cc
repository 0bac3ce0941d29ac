// The daemon dies, stops, changes, or comes back late: none lost, none twice, and a clear end where
// there is no way on.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "tests/client/client_fixture.h"
#include "tests/support/fork_server.h"

namespace headrace {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ReconnectTest : public testing::Test {
 protected:
  void Start(std::vector<std::string> options = {}) {
    daemon_.emplace(address_, std::move(options));
  }
  hr_session_stats Stats(hr_session* session) {
    hr_session_stats stats;
    hr_session_get_stats(session, &stats);
    return stats;
  }
  const std::string address_ = FreshAddress();
  std::optional<FakeDaemonProcess> daemon_;
};

TEST_F(ReconnectTest, WhatADeadDaemonFinishedIsStillUsed) {
  Start({"--die-after", "5"});  // four slots, so the fifth comes after the first was given back
  const ClientPtr client = OpenClient(address_);
  const SessionPtr session = OpenSession(client.get());
  Batch batch;
  ASSERT_EQ(batch.Next(session.get()), HR_OK);
  ASSERT_EQ(batch.Next(session.get()), HR_OK);
  daemon_->Wait();
  for (int64_t step = 2; step < 5; ++step) {
    ASSERT_EQ(batch.Next(session.get(), 0), HR_OK) << hr_last_error();
    EXPECT_EQ(batch.index(0), 4 * step);
    EXPECT_TRUE(IsRight(batch));
  }
  EXPECT_EQ(batch.Next(session.get(), 30), HR_DEADLINE_EXCEEDED);
  Start();
  ASSERT_EQ(batch.Next(session.get()), HR_OK) << hr_last_error();
  EXPECT_EQ(batch.index(0), 20);
  EXPECT_EQ(Stats(session.get()).reconnections, 1u);
}

TEST_F(ReconnectTest, TheErrorAtTheDeadlineNamesStepTimeAndCause) {
  Start({"--die-after", "2"});
  const ClientPtr client = OpenClient(address_);
  const SessionPtr session = OpenSession(client.get(), SpecJson(), 2, 16);
  Batch batch;
  ASSERT_EQ(batch.Next(session.get()), HR_OK);
  ASSERT_EQ(batch.Next(session.get()), HR_OK);
  const std::string pid = std::to_string(daemon_->pid());
  daemon_->Wait();
  EXPECT_EQ(batch.Next(session.get(), 100), HR_DEADLINE_EXCEEDED);
  EXPECT_THAT(hr_last_error(), AllOf(HasSubstr("epoch 2, position 24"), HasSubstr("within 100 ms"),
                                     HasSubstr("pid " + pid + ") ended"),
                                     HasSubstr("no daemon listens at " + address_)));
}

TEST_F(ReconnectTest, AStoppedDaemonsReasonIsTold) {
  Start({"--stop-after", "1"});
  const ClientPtr client = OpenClient(address_);
  const SessionPtr session = OpenSession(client.get());
  Batch batch;
  ASSERT_EQ(batch.Next(session.get()), HR_OK) << hr_last_error();
  const auto is_told = [] { return std::string(hr_last_error()).find("the daemon stopped: told to stop") != std::string::npos; };
  for (int i = 0; i < 100 && !is_told(); ++i) EXPECT_EQ(batch.Next(session.get(), 100), HR_DEADLINE_EXCEEDED);
  EXPECT_TRUE(is_told()) << hr_last_error();
}

TEST_F(ReconnectTest, AnotherDatasetIsAClearErrorAtOnce) {
  Start({"--die-after", "1", "--hash", "11111111111111111111111111111111"});
  const ClientPtr client = OpenClient(address_);
  const SessionPtr session = OpenSession(client.get());
  Batch batch;
  ASSERT_EQ(batch.Next(session.get()), HR_OK);
  Start({"--hash", "22222222222222222222222222222222"});
  EXPECT_EQ(batch.Next(session.get()), HR_FAILED_PRECONDITION);
  EXPECT_THAT(hr_last_error(),
              AllOf(HasSubstr("changed"), HasSubstr("11111111111111111111111111111111"),
                    HasSubstr("22222222222222222222222222222222")));
}

TEST_F(ReconnectTest, AnotherOrderOrPixelVersionIsAClearErrorAtOnce) {
  for (const char* version : {"--pixel-version", "--order-version"}) {
    Start({"--die-after", "1"});
    const ClientPtr client = OpenClient(address_);
    const SessionPtr session = OpenSession(client.get());
    Batch batch;
    ASSERT_EQ(batch.Next(session.get()), HR_OK);
    Start({version, "2"});
    EXPECT_EQ(batch.Next(session.get()), HR_FAILED_PRECONDITION);
    EXPECT_THAT(hr_last_error(), AllOf(HasSubstr("version changed"), HasSubstr("1 → 2")));
  }
}

TEST_F(ReconnectTest, MemoryThatADyingSessionHoldsIsWaitedFor) {
  Start({"--die-after", "1"});
  const ClientPtr client = OpenClient(address_);
  const SessionPtr session = OpenSession(client.get());
  Batch batch;
  ASSERT_EQ(batch.Next(session.get()), HR_OK);
  Start({"--exhausted", "4"});
  ASSERT_EQ(batch.Next(session.get()), HR_OK) << hr_last_error();
  EXPECT_EQ(batch.index(0), 4);
}

TEST_F(ReconnectTest, AFirstOpenWithoutMemoryFailsAtOnce) {
  Start({"--exhausted", "1"});
  const ClientPtr client = OpenClient(address_);
  hr_session* session = nullptr;
  EXPECT_EQ(hr_session_open(client.get(), SpecJson().c_str(), nullptr, 0, 0, kTimeoutMs, &session),
            HR_RESOURCE_EXHAUSTED);
  EXPECT_STREQ(hr_last_error(), "memory is held by a dying session");
}

TEST_F(ReconnectTest, CallsWithShortDeadlinesGetThroughAReconnection) {
  Start({"--die-after", "1"});
  const ClientPtr client = OpenClient(address_);
  const SessionPtr session = OpenSession(client.get());
  Batch batch;
  ASSERT_EQ(batch.Next(session.get()), HR_OK);
  Start({"--delay-us", "3000", "--start-delay-ms", "100"});
  int code = HR_DEADLINE_EXCEEDED;
  for (int tries = 0; tries < 5000 && code == HR_DEADLINE_EXCEEDED; ++tries)
    code = batch.Next(session.get(), 1);
  ASSERT_EQ(code, HR_OK) << hr_last_error();
  EXPECT_EQ(batch.index(0), 4);
}

TEST_F(ReconnectTest, ASeekThatKillsTheDaemonIsCarriedOutByTheNextOne) {
  Start({"--die-at-seek"});
  const ClientPtr client = OpenClient(address_);
  const SessionPtr session = OpenSession(client.get());
  Batch batch;
  ASSERT_EQ(batch.Next(session.get()), HR_OK);
  ASSERT_EQ(hr_session_seek(session.get(), 4, 80, kTimeoutMs), HR_OK) << hr_last_error();
  Start();
  ASSERT_EQ(batch.Next(session.get()), HR_OK) << hr_last_error();
  EXPECT_EQ(batch.get().epoch, 4u);
  EXPECT_EQ(batch.index(0), 80);
}

TEST_F(ReconnectTest, ASeekThatIsNotAnsweredStillDecidesWhereTheSessionGoesOn) {
  Start({"--silent", "6"});
  const ClientPtr client = OpenClient(address_);
  const SessionPtr session = OpenSession(client.get());
  Batch batch;
  ASSERT_EQ(batch.Next(session.get()), HR_OK);
  EXPECT_EQ(hr_session_seek(session.get(), 4, 80, 50), HR_DEADLINE_EXCEEDED);
  ASSERT_EQ(batch.Next(session.get()), HR_OK) << hr_last_error();
  EXPECT_EQ(batch.get().epoch, 4u);
  EXPECT_EQ(batch.index(0), 80);
}

// Kills the private daemon at random moments until it is told to stop.
class Killer {
 public:
  Killer(const std::string& address, int mean_ms)
      : thread_([this, address, mean_ms] {
          std::mt19937 random(7);
          while (!done_) {
            std::this_thread::sleep_for(std::chrono::milliseconds(random() % (2 * mean_ms)));
            const ClientPtr client = OpenClient(address, FAKE_DAEMON, {"--size", "1000"});
            char* answer = nullptr;
            if (client == nullptr ||
                hr_request(client.get(), HR_STATS, "{}", kTimeoutMs, &answer, nullptr) != HR_OK)
              continue;
            if (kill(atoi(strchr(answer, ':') + 1), SIGKILL) == 0) ++kills_;
            hr_free(answer);
          }
        }) {}
  ~Killer() {
    done_ = true;
    thread_.join();
  }
  int kills() const { return kills_; }

 private:
  std::atomic<bool> done_{false};
  std::atomic<int> kills_{0};
  std::thread thread_;
};

// Takes `steps` batches, holding some in random number and order; false at the first that is not
// the next one.
testing::AssertionResult Train(const std::string& address, int rank, int world_size, int steps) {
  const ClientPtr client = OpenClient(address, FAKE_DAEMON, {"--size", "1000"});
  if (client == nullptr) return testing::AssertionFailure() << hr_last_error();
  const SessionPtr session = OpenSession(
      client.get(), SpecJson({.batch_size = 2, .rank = rank, .world_size = world_size}));
  if (session == nullptr) return testing::AssertionFailure() << hr_last_error();
  std::mt19937 random(static_cast<unsigned>(rank));
  std::vector<Batch> held;
  const int per_epoch = 1000 / (2 * world_size);
  for (int step = 0; step < steps; ++step) {
    Batch batch;
    if (batch.Next(session.get()) != HR_OK) return testing::AssertionFailure() << hr_last_error();
    const int64_t first = (step % per_epoch) * 2 * world_size + 2 * rank;
    if (batch.index(0) != first || batch.get().epoch != static_cast<uint64_t>(step / per_epoch)) {
      return testing::AssertionFailure()
             << "step " << step << ": sample " << batch.index(0) << ", not " << first;
    }
    if (auto right = IsRight(batch); !right) return right;
    held.push_back(std::move(batch));
    std::shuffle(held.begin(), held.end(), random);
    while (held.size() > random() % 5) {
      if (auto right = IsRight(held.back()); !right) return right << " (held)";
      held.pop_back();
    }
    if (random() % 64 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return testing::AssertionSuccess();
}

TEST_F(ReconnectTest, NoneIsLostAndNoneComesTwiceWhileTheDaemonIsKilledAgainAndAgain) {
  constexpr int kRanks = 4, kSteps = TEST_SLOWDOWN > 1 ? 2500 : 10000;
  std::vector<testing::AssertionResult> results(kRanks, testing::AssertionFailure());
  int kills = 0;
  {
    const Killer killer(address_, 60);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] { results[rank] = Train(address_, rank, kRanks, kSteps); });
    }
    for (std::thread& thread : threads) thread.join();
    kills = killer.kills();
  }
  for (const auto& result : results) EXPECT_TRUE(result);
  EXPECT_GE(kills, 5);
}

TEST_F(ReconnectTest, TrainersThatAreKilledDisturbNobody) {
  ForkServer forks;  // before there are threads
  const Killer killer(address_, 100);
  testing::AssertionResult result = testing::AssertionFailure();
  std::atomic<bool> done{false};
  std::thread trainer([&] {
    result = Train(address_, 0, 1, TEST_SLOWDOWN > 1 ? 1000 : 4000);
    done = true;
  });
  std::mt19937 random(3);
  while (!done) {
    const pid_t child = forks.Start([](const std::string& address) { return Train(address, 0, 1, 1000000) ? 0 : 1; }, address_);
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + random() % 100));
    kill(child, SIGKILL);
    EXPECT_TRUE(WIFSIGNALED(forks.Wait()))
        << "a trainer ended by itself: it had a wrong batch or an error";
  }
  trainer.join();
  EXPECT_TRUE(result);
}

}  // namespace
}  // namespace headrace
