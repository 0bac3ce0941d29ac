#include "client/shortage.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace headrace::client {
namespace {

constexpr int64_t kMs = 1'000'000;

// Steps of `step_ms` in which each batch is waited for so long. After how many ms the waits are notable; −1: never, in `most_ms`.
int64_t NotableAfter(Shortage* shortage, int64_t step_ms, int64_t wait_ms, int64_t most_ms = 600'000) {
  for (int64_t now = step_ms; now <= most_ms; now += step_ms) {
    shortage->Waited(now * kMs, wait_ms * kMs);
    if (shortage->IsNotable()) return now;
  }
  return -1;
}

TEST(Shortage, IsNotableWhenWaitsTakeMoreThanATwentiethOfTenSeconds) {
  for (const int64_t step_ms : {10, 100, 300, 1000, 5000}) {
    Shortage a, b, c;
    EXPECT_EQ(NotableAfter(&a, step_ms, step_ms / 25), -1) << "4 %";
    const int64_t seldom = NotableAfter(&b, step_ms, (step_ms + 14) / 15);
    EXPECT_GT(seldom, 4999) << step_ms;
    EXPECT_LE(seldom, 5 * step_ms + 10'000) << step_ms;
    const int64_t always = NotableAfter(&c, step_ms, step_ms);
    EXPECT_GE(always, std::max<int64_t>(500, 4 * step_ms));
    EXPECT_LE(always, std::max<int64_t>(700, 5 * step_ms));
  }
}

TEST(Shortage, FewLongWaitsAreAccidents) {
  Shortage shortage;
  for (int64_t minute = 1; minute < 100; ++minute) {
    for (int wait = 0; wait < 3; ++wait) shortage.Waited((60'000 * minute + 500 * wait) * kMs, 400 * kMs);
    EXPECT_FALSE(shortage.IsNotable());
  }
}

TEST(Shortage, WhatDidNotHelpIsTriedAgainLessAndLessOften) {
  Shortage shortage;
  int64_t last = 0;
  for (int round = 0; round < 5; ++round) {
    const int64_t after = NotableAfter(&shortage, 10, 10);
    EXPECT_GT(after, 3 * last);
    last = after;
    shortage.Act();
    EXPECT_FALSE(shortage.IsNotable());
  }
}

}  // namespace
}  // namespace headrace::client
