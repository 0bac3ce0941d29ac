// Batches of a healthy daemon: contents, cursors, order, waiting, seeking.
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <thread>

#include "tests/client/client_fixture.h"
#include "tests/support/fake_daemon.h"

namespace headrace {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class SessionTest : public testing::Test {
 protected:
  void Start(std::vector<std::string> options = {}) {
    daemon_.emplace(address_, std::move(options));
    client_ = OpenClient(address_);
  }
  const std::string address_ = FreshAddress();
  std::optional<FakeDaemonProcess> daemon_;
  ClientPtr client_;
};

TEST_F(SessionTest, BatchesComeInOrderAcrossEpochsWithTheirCursors) {
  Start({"--size", "10"});
  const SessionPtr session = OpenSession(client_.get());
  for (uint64_t epoch = 0; epoch < 20; ++epoch) {
    for (uint64_t position = 0; position < 10; position += 4) {
      Batch batch;
      ASSERT_EQ(batch.Next(session.get()), HR_OK) << hr_last_error();
      EXPECT_EQ(batch.get().epoch, epoch);
      EXPECT_EQ(batch.get().position, position);
      EXPECT_EQ(batch.get().next_position, std::min<uint64_t>(10, position + 4));
      EXPECT_EQ(batch.get().length, std::min<uint64_t>(4, 10 - position));
      EXPECT_EQ(batch.index(0), static_cast<int64_t>(position));
      EXPECT_TRUE(IsRight(batch));
    }
  }
}

TEST_F(SessionTest, FieldsAreDescribedAsDlpackDemands) {
  Start();
  const SessionPtr session = OpenSession(client_.get());
  Batch batch;
  ASSERT_EQ(batch.Next(session.get()), HR_OK);
  const hr_dl_tensor& image = batch.get().fields[0]->dl_tensor;
  EXPECT_EQ(image.device.device_type, 1);
  EXPECT_EQ(image.ndim, 4);
  EXPECT_EQ(image.dtype.code, 2);
  EXPECT_EQ(image.dtype.bits, 32);
  EXPECT_EQ(image.dtype.lanes, 1);
  EXPECT_EQ(std::vector<int64_t>(image.shape, image.shape + 4),
            (std::vector<int64_t>{4, 3, 64, 64}));
  EXPECT_EQ(std::vector<int64_t>(image.strides, image.strides + 4),
            (std::vector<int64_t>{12288, 4096, 64, 1}));
  const hr_dl_tensor& label = batch.get().fields[1]->dl_tensor;
  EXPECT_EQ(label.ndim, 1);
  EXPECT_EQ(label.dtype.code, 0);
  EXPECT_EQ(label.dtype.bits, 64);
  const hr_dl_tensor& text = batch.get().fields[2]->dl_tensor;
  EXPECT_EQ(text.dtype.code, 1);
  EXPECT_EQ(text.dtype.bits, 8);
  EXPECT_EQ(text.shape[0], 4 * 20);
  for (uint32_t i = 0; i < batch.get().num_fields; ++i) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(batch.get().fields[i]->dl_tensor.data) % 64, 0u);
  }
}

TEST_F(SessionTest, AnEmptyPartOfALastStepIsABatchOfLengthZero) {
  Start({"--size", "5"});
  // World of 4 with one sample left: ranks 0 … 2 get nothing of it.
  const SessionPtr session =
      OpenSession(client_.get(), SpecJson({.batch_size = 1, .rank = 0, .world_size = 4}));
  Batch batch;
  ASSERT_EQ(batch.Next(session.get()), HR_OK);
  ASSERT_EQ(batch.Next(session.get()), HR_OK) << hr_last_error();
  EXPECT_EQ(batch.get().length, 0u);
  EXPECT_EQ(batch.get().fields[0]->dl_tensor.shape[0], 0);
  EXPECT_NE(batch.get().fields[0]->dl_tensor.data, nullptr);
  ASSERT_EQ(batch.Next(session.get()), HR_OK);
  EXPECT_EQ(batch.get().epoch, 1u);
}

TEST_F(SessionTest, OpensInTheMiddleOfAnEpoch) {
  Start();
  const SessionPtr session = OpenSession(client_.get(), SpecJson(), 7, 500);
  Batch batch;
  ASSERT_EQ(batch.Next(session.get()), HR_OK);
  EXPECT_EQ(batch.get().epoch, 7u);
  EXPECT_EQ(batch.index(0), 500);
  EXPECT_TRUE(IsRight(batch));
}

TEST_F(SessionTest, InfoIsTheDaemonsAnswer) {
  Start({"--size", "77", "--hash", "0123456789abcdef0123456789abcdef"});
  const SessionPtr session = OpenSession(client_.get());
  const hr_open_answer* info = hr_session_info(session.get());
  EXPECT_EQ(info->dataset_size, 77u);
  EXPECT_STREQ(info->dataset_hash, "0123456789abcdef0123456789abcdef");
  EXPECT_EQ(info->num_slots, 4u);
  EXPECT_STREQ(info->fields[2].name, "name");
}

TEST_F(SessionTest, AnotherHashThanTheOneDemandedIsRefused) {
  Start({"--hash", "0123456789abcdef0123456789abcdef"});
  hr_session* session = nullptr;
  EXPECT_EQ(hr_session_open(client_.get(), SpecJson().c_str(), "ffffffffffffffffffffffffffffffff",
                            0, 0, kTimeoutMs, &session),
            HR_FAILED_PRECONDITION);
  EXPECT_EQ(session, nullptr);
  EXPECT_THAT(hr_last_error(),
              AllOf(HasSubstr("changed"), HasSubstr("ffffffffffffffffffffffffffffffff"),
                    HasSubstr("0123456789abcdef0123456789abcdef")));
}

TEST_F(SessionTest, ABadBatchIsReportedAndTheNextCallGoesOnBehindIt) {
  Start({"--bad-at", "8"});
  const SessionPtr session = OpenSession(client_.get());
  Batch batch;
  ASSERT_EQ(batch.Next(session.get()), HR_OK);
  ASSERT_EQ(batch.Next(session.get()), HR_OK);
  ASSERT_EQ(batch.Next(session.get()), HR_BAD_SAMPLE);
  EXPECT_STREQ(hr_last_error(), "{\"message\": \"bad\", \"sample\": 8}");
  EXPECT_EQ(batch.get().num_fields, 0u);
  EXPECT_EQ(batch.get().position, 8u);
  EXPECT_EQ(batch.get().next_position, 12u);
  // Its slot was given back: the ring goes round several times without it.
  for (int64_t first = 12; first < 100; first += 4) {
    ASSERT_EQ(batch.Next(session.get()), HR_OK) << hr_last_error();
    EXPECT_EQ(batch.index(0), first);
  }
}

TEST_F(SessionTest, SeekGoesOnAtAnotherCursorAndThrowsNothingElseAway) {
  Start();
  const SessionPtr session = OpenSession(client_.get());
  Batch held, batch;
  ASSERT_EQ(held.Next(session.get()), HR_OK);
  for (int round = 0; round < 100; ++round) {
    const uint64_t epoch = 3 + round, position = 4 * ((round * 37) % 200);
    ASSERT_EQ(hr_session_seek(session.get(), epoch, position, kTimeoutMs), HR_OK)
        << hr_last_error();
    for (int step = 0; step < round % 4; ++step) {
      ASSERT_EQ(batch.Next(session.get()), HR_OK) << hr_last_error();
      EXPECT_EQ(batch.get().epoch, epoch);
      EXPECT_EQ(batch.get().position, position + 4 * step);
      EXPECT_TRUE(IsRight(batch));
    }
  }
  EXPECT_EQ(held.index(0), 0);
  EXPECT_TRUE(IsRight(held));
  hr_session_stats stats;
  hr_session_get_stats(session.get(), &stats);
  EXPECT_EQ(stats.reconnections, 0u);
}

TEST_F(SessionTest, ASeekTheDaemonRefusesLeavesTheSessionWhereItWas) {
  Start();
  const SessionPtr session = OpenSession(client_.get());
  Batch batch;
  ASSERT_EQ(batch.Next(session.get()), HR_OK);
  EXPECT_EQ(hr_session_seek(session.get(), 0, 5000, kTimeoutMs), HR_OUT_OF_RANGE);
  EXPECT_STREQ(hr_last_error(), "position is behind the end");
  ASSERT_EQ(batch.Next(session.get()), HR_OK);
  EXPECT_EQ(batch.get().position, 4u);
}

TEST_F(SessionTest, WaitsForASlowDaemon) {
  Start({"--delay-us", "20000"});
  const SessionPtr session = OpenSession(client_.get());
  Batch batch;
  for (int64_t step = 0; step < 20; ++step) {
    ASSERT_EQ(batch.Next(session.get()), HR_OK) << hr_last_error();
    EXPECT_EQ(batch.index(0), 4 * step);
  }
  hr_session_stats stats;
  hr_session_get_stats(session.get(), &stats);
  EXPECT_EQ(stats.batches, 20u);
  EXPECT_EQ(stats.samples, 80u);
  EXPECT_GT(stats.waited_ns, 20'000'000u);
}

TEST_F(SessionTest, TheDeadlineNamesTheStepAndTheSessionStaysUsable) {
  Start({"--stall-after", "2"});
  const SessionPtr session = OpenSession(client_.get(), SpecJson(), 5, 40);
  Batch batch;
  ASSERT_EQ(batch.Next(session.get()), HR_OK);
  ASSERT_EQ(batch.Next(session.get()), HR_OK);
  ASSERT_EQ(batch.Next(session.get(), 50), HR_DEADLINE_EXCEEDED);
  EXPECT_THAT(hr_last_error(),
              AllOf(HasSubstr("epoch 5, position 48"), HasSubstr("within 50 ms"),
                    HasSubstr("pid " + std::to_string(daemon_->pid())), HasSubstr("connected")));
  EXPECT_EQ(hr_session_seek(session.get(), 0, 0, kTimeoutMs), HR_OK);
  ASSERT_EQ(batch.Next(session.get(), 0), HR_DEADLINE_EXCEEDED);
}

void OnSignal(int) {}

TEST_F(SessionTest, ASignalHandlerEndsTheWait) {
  Start({"--stall-after", "0"});
  const SessionPtr session = OpenSession(client_.get());
  struct sigaction action = {}, before;
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;  // poll is never restarted
  sigaction(SIGUSR1, &action, &before);
  const pthread_t self = pthread_self();
  std::atomic<bool> done{false};
  std::thread signaller([&] {
    while (!done) {
      pthread_kill(self, SIGUSR1);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  Batch batch;
  EXPECT_EQ(batch.Next(session.get()), HR_INTERRUPTED);
  done = true;
  signaller.join();
  sigaction(SIGUSR1, &before, nullptr);
}

TEST_F(SessionTest, ASessionIsOpenedAnewBeforeItsTicketsWrap) {
  Start({"--first-ticket", std::to_string(0xFFFF0000u - 5)});
  const SessionPtr session = OpenSession(client_.get());
  Batch batch;
  for (int64_t step = 0; step < 20; ++step) {
    ASSERT_EQ(batch.Next(session.get()), HR_OK) << hr_last_error();
    EXPECT_EQ(batch.index(0), 4 * step);
  }
  hr_session_stats stats;
  hr_session_get_stats(session.get(), &stats);
  EXPECT_EQ(stats.reconnections, 3u);  // this daemon begins there each time
}

TEST_F(SessionTest, SeveralSessionsOfOneClientRunSideBySide) {
  Start();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      const SessionPtr session =
          OpenSession(client_.get(), SpecJson({.rank = rank, .world_size = 4}));
      Batch batch;
      for (int64_t step = 0; step < 62; ++step) {
        ASSERT_EQ(batch.Next(session.get()), HR_OK) << hr_last_error();
        EXPECT_EQ(batch.index(0), 16 * step + 4 * rank);
        EXPECT_TRUE(IsRight(batch));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(SessionTest, OutlivesTheClientItWasOpenedWith) {
  Start();
  const SessionPtr session = OpenSession(client_.get());
  client_.reset();
  Batch batch;
  for (int step = 0; step < 10; ++step)
    ASSERT_EQ(batch.Next(session.get()), HR_OK) << hr_last_error();
  EXPECT_EQ(hr_session_seek(session.get(), 1, 8, kTimeoutMs), HR_OK) << hr_last_error();
  ASSERT_EQ(batch.Next(session.get()), HR_OK);
  EXPECT_EQ(batch.index(0), 8);
}

TEST_F(SessionTest, WrongArgumentsAreErrors) {
  Start();
  const SessionPtr session = OpenSession(client_.get());
  hr_batch batch;
  EXPECT_EQ(hr_session_next(nullptr, &batch, 1), HR_INVALID_ARGUMENT);
  EXPECT_EQ(hr_session_next(session.get(), nullptr, 1), HR_INVALID_ARGUMENT);
  EXPECT_EQ(hr_session_next(session.get(), &batch, -1), HR_INVALID_ARGUMENT);
  hr_session* out = nullptr;
  EXPECT_EQ(hr_session_open(client_.get(), "{}", "no hash", 0, 0, 1, &out), HR_INVALID_ARGUMENT);
  EXPECT_THAT(hr_last_error(), HasSubstr("hash"));
  hr_session_close(nullptr);
  hr_client_close(nullptr);
}

}  // namespace
}  // namespace headrace
