#include "tests/slot/handover_model.h"

#include <gtest/gtest.h>

#include <iostream>

namespace headrace::testing {
namespace {

// Looked at wholly in the order of what it costs; sanitizers see the cheap ones.
constexpr Bounds kBounds[] = {
    {.batches = 3, .crashes = 1, .client_dies = true},
    {.batches = 2, .seeks = 1},
    {.batches = 3, .crashes = 2, .deadlines = 1},
    {.slots = 3, .batches = 4},
    {.batches = 3, .seeks = 1, .leases = false},
    {.slots = 3, .batches = 4, .crashes = 1},
    {.batches = 2, .crashes = 1, .seeks = 1, .deadlines = 1},
    {.batches = 3, .seeks = 1},
};
constexpr size_t kNumBounds = TEST_SLOWDOWN > 1 ? 2 : std::size(kBounds);

std::string Told(const Finding& finding) {
  std::string text = finding.violation;
  for (const std::string& action : finding.trace) text += "\n  " + action;
  return text;
}

TEST(HandoverModel, NothingIsLostTwiceStuckOrFilledWhileLeasedWhateverDiesWhen) {
  for (size_t i = 0; i < kNumBounds; ++i) {
    const Finding finding = Explore(kBounds[i]);
    EXPECT_EQ(finding.violation, "") << "bounds " << i << ": " << Told(finding);
    EXPECT_GT(finding.states, 10'000u) << "bounds " << i;
    std::cout << "bounds " << i << ": " << finding.states << " states\n";
  }
}

struct Case {
  Mutation mutation;
  Bounds bounds;
  const char* violation;
};

constexpr char kStuck[] = "the trainer never gets what is due", kNotWhole[] = "a batch comes that is not whole",
               kLost[] = "a batch is lost", kTwice[] = "a batch comes twice";
constexpr Bounds kSmall = {.batches = 3}, kWithSeek = {.batches = 2, .seeks = 1}, kWithCrash = {.batches = 3, .crashes = 1};

// Each shows that the model would see the protocol's line missing.
TEST(HandoverModel, SeesEveryLineThatIsLeftOutOrTurnedRound) {
  for (const Case& one : {
           Case{Mutation::kWaitWithoutWord, kSmall, kStuck},
           {Mutation::kClientLooksTooEarly, kWithSeek, kStuck},
           {Mutation::kDaemonLooksTooEarly, kSmall, kStuck},
           {Mutation::kSleepWithoutLook, kSmall, kStuck},
           {Mutation::kPublishBeforeFilling, kSmall, kNotWhole},
           {Mutation::kReadyBeforeLine, kSmall, kNotWhole},
           {Mutation::kAnyReleaseFrees, {.batches = 4}, kNotWhole},
           {Mutation::kLeaseTheLastSlot, kSmall, kStuck},
           {Mutation::kKeepOlderTickets, kWithSeek, kStuck},
           {Mutation::kLookOnce, kSmall, "the ring of an honest daemon is called broken"},
           {Mutation::kSeekNamesAnOldTicket, {.batches = 3, .seeks = 1, .leases = false}, kLost},
           {Mutation::kReopenBehindTheCursor, kWithCrash, kLost},
           {Mutation::kReopenBeforeTheCursor, kWithCrash, kTwice},
           {Mutation::kPendingOpenSurvivesSeek, {.batches = 2, .seeks = 1, .deadlines = 1}, kTwice},
           {Mutation::kIdsBeginAnew, {.batches = 2, .crashes = 1, .seeks = 1}, "SEEK moves another session"},
           {Mutation::kGiveBackWhileFilling, {.batches = 2, .client_dies = true}, "a thread writes into a ring that was given back"},
       }) {
    const Finding finding = Explore(one.bounds, one.mutation);
    EXPECT_EQ(finding.violation, one.violation) << "mutation " << static_cast<int>(one.mutation) << ": " << Told(finding);
    std::cout << "mutation " << static_cast<int>(one.mutation) << ": " << finding.states << " states\n";
  }
}

}  // namespace
}  // namespace headrace::testing
