#include "core/pipeline/thread_limit.h"

#include <gtest/gtest.h>

#include <algorithm>

// In made-up time: a trainer takes batches at a steady pace; what they cost is shared by the threads that may work.

namespace headrace {
namespace {

constexpr int64_t kMs = 1'000'000;

// Threads that a trainer makes busy all the time, on the average: `load`. Work comes every `period_ns`.
void Simulate(double load, int64_t period_ns, int64_t duration_ns, int64_t* now_ns, ThreadLimit* limit, int* most = nullptr) {
  double waiting_ns = 0;  // thread time of the work that has come
  for (const int64_t end_ns = *now_ns + duration_ns; *now_ns < end_ns; *now_ns += period_ns) {
    waiting_ns += load * static_cast<double>(period_ns);
    const double possible_ns = static_cast<double>(limit->limit()) * static_cast<double>(period_ns);
    const double done_ns = std::min(waiting_ns, possible_ns);
    waiting_ns -= done_ns;
    const auto each_ns = static_cast<int64_t>(done_ns / limit->limit());
    for (int thread = limit->limit(); thread > 0; --thread) limit->Worked(*now_ns, *now_ns + each_ns);
    if (most != nullptr) *most = std::max(*most, limit->limit());
  }
}

TEST(ThreadLimit, BeginsWithAll) { EXPECT_EQ(ThreadLimit(16).limit(), 16); }

TEST(ThreadLimit, ComesDownToWhatTheLoadNeeds) {
  for (const double load : {0.01, 0.5, 2.4, 7.6, 12.0}) {
    ThreadLimit limit(16);
    int64_t now_ns = 77;
    Simulate(load, 5 * kMs, 2000 * kMs, &now_ns, &limit);
    int most = 0;
    Simulate(load, 5 * kMs, 1000 * kMs, &now_ns, &limit, &most);
    EXPECT_GE(most, load) << load;
    EXPECT_LE(most, load / ThreadLimit::kBusy + 2.5) << load;
  }
}

TEST(ThreadLimit, GoesUpWithTheLoad) {
  ThreadLimit limit(16);
  int64_t now_ns = 0;
  Simulate(0.5, 5 * kMs, 2000 * kMs, &now_ns, &limit);
  EXPECT_EQ(limit.limit(), 1);
  Simulate(16, 5 * kMs, 600 * kMs, &now_ns, &limit);
  EXPECT_EQ(limit.limit(), 16);
  Simulate(16, 5 * kMs, 2000 * kMs, &now_ns, &limit);
  EXPECT_EQ(limit.limit(), 16);
}

TEST(ThreadLimit, APauseCostsOneThread) {
  ThreadLimit limit(8);
  int64_t now_ns = 0;
  Simulate(8, 5 * kMs, 500 * kMs, &now_ns, &limit);
  now_ns += 60'000 * kMs;
  Simulate(8, 5 * kMs, 5 * kMs, &now_ns, &limit);
  EXPECT_EQ(limit.limit(), 7);
}

TEST(ThreadLimit, AHurryIsForAll) {
  ThreadLimit limit(8);
  int64_t now_ns = 0;
  Simulate(0.5, 5 * kMs, 2000 * kMs, &now_ns, &limit);
  limit.Hurry();
  EXPECT_EQ(limit.limit(), 8);
  Simulate(0.5, 5 * kMs, ThreadLimit::kWindowNs - 10 * kMs, &now_ns, &limit);
  EXPECT_EQ(limit.limit(), 8);
}

TEST(ThreadLimit, OneThreadAlwaysWorks) {
  ThreadLimit limit(1);
  for (int64_t i = 0; i < 100; ++i) limit.Worked(i * 1000 * kMs, i * 1000 * kMs);
  EXPECT_EQ(limit.limit(), 1);
}

}  // namespace
}  // namespace headrace
