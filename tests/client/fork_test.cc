// A forked child shares the parent's memory, and must not disturb it.
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/client/client_fixture.h"

namespace headrace {
namespace {

// Runs `body` in a forked child and returns its exit status, -1 when it was killed.
template <class Body>
int InChild(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int state = 0;
  waitpid(child, &state, 0);
  return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

// Allocates nothing: for children of a process with threads. No test has a descriptor as high as 1024.
int CountSockets() {
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    struct stat info;
    count += fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode);
  }
  return count;
}

class ForkTest : public testing::Test {
 protected:
  void SetUp() override {
    daemon_.emplace(address_, std::vector<std::string>{});
    client_ = OpenClient(address_);
    session_ = OpenSession(client_.get());
  }
  const std::string address_ = FreshAddress();
  std::optional<FakeDaemonProcess> daemon_;
  ClientPtr client_;
  SessionPtr session_;
};

TEST_F(ForkTest, AChildsDeletersDoNotGiveTheParentsSlotsBack) {
  Batch batch;
  ASSERT_EQ(batch.Next(session_.get()), HR_OK);
  ASSERT_EQ(InChild([&] {
              batch.Drop();
              return 0;
            }),
            0);
  // Were the slot given back, the ring would come round to it while it is held.
  Batch others;
  for (int step = 0; step < 50; ++step) ASSERT_EQ(others.Next(session_.get()), HR_OK);
  EXPECT_EQ(batch.index(0), 0);
  EXPECT_TRUE(IsRight(batch));
}

TEST_F(ForkTest, ARawCloneWithoutForkHandlersIsGuardedToo) {
  Batch batch;
  ASSERT_EQ(batch.Next(session_.get()), HR_OK);
  const pid_t child =
      static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  if (child == 0) {
    hr_dl_managed_tensor* image = batch.Take(0);
    image->deleter(image);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  Batch others;
  for (int step = 0; step < 50; ++step) ASSERT_EQ(others.Next(session_.get()), HR_OK);
  EXPECT_TRUE(IsRight(batch));
}

TEST_F(ForkTest, AChildMayNotUseItsParentsSession) {
  EXPECT_EQ(InChild([&] {
              Batch batch;
              if (batch.Next(session_.get()) != HR_FAILED_PRECONDITION) return 1;
              if (strstr(hr_last_error(), "fork") == nullptr) return 2;
              if (hr_session_seek(session_.get(), 0, 0, 10) != HR_FAILED_PRECONDITION) return 3;
              char* answer;
              if (hr_request(client_.get(), HR_STATS, "{}", 10, &answer, nullptr) !=
                  HR_FAILED_PRECONDITION)
                return 4;
              hr_session_close(session_.get());
              hr_client_close(client_.get());
              return 0;
            }),
            0);
  Batch batch;
  for (int step = 0; step < 20; ++step)
    ASSERT_EQ(batch.Next(session_.get()), HR_OK) << hr_last_error();
}

TEST_F(ForkTest, AChildOpensItsOwnWhileTheParentGoesOn) {
  Batch held;
  ASSERT_EQ(held.Next(session_.get()), HR_OK);
  const pid_t child = fork();
  if (child == 0) {
    const ClientPtr client = OpenClient(address_);
    const SessionPtr session = OpenSession(client.get(), SpecJson(), 3, 100);
    Batch batches[3];
    for (int step = 0; step < 60; ++step) {
      Batch& batch = batches[step % 3];
      if (batch.Next(session.get()) != HR_OK || batch.index(0) != 100 + 4 * step || !IsRight(batch))
        _exit(1);
    }
    hr_session_stats stats;
    hr_session_get_stats(session.get(), &stats);
    // Its own deleters do work: were they not, all but three batches would be copies.
    _exit(stats.copied_batches < 3 ? 0 : 2);
  }
  Batch batch;
  for (int step = 1; step < 60; ++step) {
    ASSERT_EQ(batch.Next(session_.get()), HR_OK);
    ASSERT_EQ(batch.index(0), 4 * step);
  }
  int state = 0;
  waitpid(child, &state, 0);
  EXPECT_TRUE(WIFEXITED(state));
  EXPECT_EQ(WEXITSTATUS(state), 0);
  EXPECT_TRUE(IsRight(held));
}

TEST_F(ForkTest, AGrandchildsProcessIsAnotherAgain) {
  EXPECT_EQ(InChild([&] {
              const ClientPtr client = OpenClient(address_);
              const SessionPtr session = OpenSession(client.get());
              Batch batch;
              if (batch.Next(session.get()) != HR_OK) return 1;
              const int grandchild = InChild([&] {
                batch.Drop();
                return batch.Next(session.get()) == HR_FAILED_PRECONDITION ? 0 : 1;
              });
              if (grandchild != 0) return 2;
              Batch others;
              for (int step = 0; step < 30; ++step) {
                if (others.Next(session.get()) != HR_OK) return 3;
              }
              return IsRight(batch) ? 0 : 4;
            }),
            0);
}

TEST_F(ForkTest, AChildKeepsNoneOfTheSockets) {
  const int before = CountSockets();
  ASSERT_GE(before, 2);
  EXPECT_EQ(InChild([&] { return CountSockets(); }), before - 2);
  Batch batch;
  for (int step = 0; step < 20; ++step) ASSERT_EQ(batch.Next(session_.get()), HR_OK);
}

TEST_F(ForkTest, ForksDuringRequestsOfOtherThreadsLeakNoSocket) {
  std::atomic<bool> done{false};
  std::thread opener([&] {
    while (!done) {
      const SessionPtr session = OpenSession(client_.get());
      Batch batch;
      ASSERT_EQ(batch.Next(session.get()), HR_OK);
    }
  });
  const int others = InChild([] { return CountSockets(); });
  for (int i = 0; i < 50; ++i) EXPECT_EQ(InChild([] { return CountSockets(); }), others);
  done = true;
  opener.join();
}

}  // namespace
}  // namespace headrace
