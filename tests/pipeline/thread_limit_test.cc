#include "core/pipeline/thread_limit.h"

#include <gtest/gtest.h>

#include <algorithm>

// In made-up time: a trainer takes a batch every so often; those that are not made yet are shared by the threads that may work.

namespace headrace {
namespace {

constexpr int64_t kMs = 1'000'000;

class Trainer {
 public:
  explicit Trainer(int threads) : limit(threads) {}

  // Takes batches of `cost_ms` of thread time every `period_ms`, `duration_ms` long.
  void Run(double cost_ms, int64_t period_ms, int64_t duration_ms) {
    most_free = 0;
    for (const int64_t end_ms = now_ms_ + duration_ms; now_ms_ < end_ms; ++now_ms_) {
      if (now_ms_ % period_ms == 0) {
        if (ready_ == 0) {
          limit.Hurry();
        } else {
          --ready_;
          left_ms_ += cost_ms;
        }
      }
      const int made_before = Made(cost_ms);
      const double done_ms = std::min<double>(left_ms_, limit.limit());
      left_ms_ -= done_ms;
      limit.Worked(static_cast<int64_t>(done_ms * kMs));
      const int made = Made(cost_ms) - made_before;
      ready_ += made;
      const int free = std::max(0, kSlots - ready_ - 1);  // behind the one that is being filled
      most_free = std::max(most_free, free);
      if (made > 0 && free > 1) limit.Behind();
      if (left_ms_ <= 0) limit.Full(now_ms_ * kMs);
    }
  }

  ThreadLimit limit;
  int most_free = 0;

 private:
  static constexpr int kSlots = 4;
  int Made(double cost_ms) const { return kSlots - ready_ - static_cast<int>((left_ms_ + cost_ms - 1e-6) / cost_ms); }

  int64_t now_ms_ = 1;
  int ready_ = kSlots;
  double left_ms_ = 0;  // of the batches that are missing
};

TEST(ThreadLimit, BeginsWithAll) { EXPECT_EQ(ThreadLimit(16).limit(), 16); }

TEST(ThreadLimit, ComesDownToWhatTheLoadNeeds) {
  for (const double load : {0.1, 0.5, 2.4, 7.6, 12.0}) {
    Trainer trainer(16);
    trainer.Run(50 * load, 50, 3000);
    trainer.Run(50 * load, 50, 3000);
    EXPECT_GE(trainer.limit.limit(), load) << load;
    EXPECT_LE(trainer.limit.limit(), load + 2) << load;
    EXPECT_LE(trainer.most_free, 2) << load;
  }
}

TEST(ThreadLimit, OneThreadThatIsBusyForPartOfEachStepIsEnough) {
  Trainer trainer(2);
  trainer.Run(58, 120, 2000);
  EXPECT_EQ(trainer.limit.limit(), 1);
}

TEST(ThreadLimit, GoesUpWithTheLoad) {
  Trainer trainer(16);
  trainer.Run(25, 50, 3000);
  EXPECT_EQ(trainer.limit.limit(), 1);
  trainer.Run(300, 50, 3000);
  EXPECT_GE(trainer.limit.limit(), 6);
  EXPECT_LE(trainer.limit.limit(), 8);
}

TEST(ThreadLimit, APauseCostsOneThread) {
  ThreadLimit limit(8);
  limit.Full(0);
  limit.Worked(1);
  limit.Full(60'000 * kMs);
  EXPECT_EQ(limit.limit(), 7);
  limit.Full(60'001 * kMs);
  EXPECT_EQ(limit.limit(), 7);
}

TEST(ThreadLimit, WhoWaitsGetsAllAndWhoFallsBehindOneMore) {
  ThreadLimit limit(8);
  for (int64_t i = 0; i < 20; ++i) limit.Full(i * 100 * kMs);
  EXPECT_EQ(limit.limit(), 1);
  limit.Behind();
  EXPECT_EQ(limit.limit(), 2);
  limit.Hurry();
  EXPECT_EQ(limit.limit(), 8);
  limit.Behind();
  EXPECT_EQ(limit.limit(), 8);
}

}  // namespace
}  // namespace headrace
