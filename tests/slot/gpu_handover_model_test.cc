#include "tests/slot/gpu_handover_model.h"

#include <gtest/gtest.h>

#include <iostream>

namespace headrace::testing {
namespace {

// In the order of what it costs; sanitizers see the cheap ones.
constexpr GpuBounds kBounds[] = {
    {.batches = 3, .crashes = 1, .client_dies = true},
    {.batches = 3, .seeks = 1},
    {.slots = 3, .batches = 4, .client_dies = true},
    {.batches = 3, .crashes = 2, .deadlines = 1},
    {.batches = 3, .crashes = 1, .seeks = 1, .deadlines = 1},
    {.slots = 3, .batches = 4, .crashes = 1},
    {.slots = 3, .batches = 4, .seeks = 1},
};
constexpr size_t kNumBounds = TEST_SLOWDOWN > 1 ? 2 : std::size(kBounds);

std::string Told(const Finding& finding) {
  std::string text = finding.violation;
  for (const std::string& action : finding.trace) text += "\n  " + action;
  return text;
}

TEST(GpuHandoverModel, NothingIsLostTwiceStuckOrFilledUnderACopyHoweverLateTheGpuIsWhateverDiesWhen) {
  for (size_t i = 0; i < kNumBounds; ++i) {
    const Finding finding = ExploreGpu(kBounds[i]);
    EXPECT_EQ(finding.violation, "") << "bounds " << i << ": " << Told(finding);
    EXPECT_GT(finding.states, 5'000u) << "bounds " << i;
    std::cout << "bounds " << i << ": " << finding.states << " states\n";
  }
}

struct Case {
  GpuMutation mutation;
  GpuBounds bounds;
  const char* violation;
};

// Each shows that the model would see the protocol's line missing.
TEST(GpuHandoverModel, SeesEveryLineThatIsLeftOutOrTurnedRound) {
  constexpr char kFilled[] = "a slot is filled while a copy out of it is pending", kNotIt[] = "a copy takes what is not the batch",
                 kBroken[] = "the ring of an honest daemon is called broken";
  constexpr GpuBounds kSmall = {.batches = 4}, kWithCrash = {.batches = 3, .crashes = 1}, kWithSeek = {.batches = 3, .seeks = 1};
  for (const Case& one : {
           Case{GpuMutation::kWordBeforeCopies, kSmall, kFilled},
           {GpuMutation::kForgetTheGpusSlots, kSmall, kFilled},
           {GpuMutation::kHostHalfAfterCopies, kSmall, "a batch has another's labels"},
           {GpuMutation::kReleasedBeforeReady, kSmall, kBroken},
           {GpuMutation::kAheadSurvivesSeek, {.slots = 3, .batches = 3, .seeks = 1}, "a batch is lost"},
           {GpuMutation::kUnmapBehindTheCopies, kWithCrash, "the GPU uses memory that was unmapped"},
           {GpuMutation::kDropWithoutMemory, kWithCrash, "a batch is lost"},
           {GpuMutation::kSleepUntilABell, kSmall, "the trainer never gets what is due"},
           {GpuMutation::kPublishBeforeTheBurst, kSmall, kNotIt},
           {GpuMutation::kAbandonedIsFree, kWithSeek, kNotIt},
       }) {
    const Finding finding = ExploreGpu(one.bounds, one.mutation);
    EXPECT_EQ(finding.violation, one.violation) << "mutation " << static_cast<int>(one.mutation) << ": " << Told(finding);
    std::cout << "mutation " << static_cast<int>(one.mutation) << ": " << finding.states << " states\n";
  }
}

}  // namespace
}  // namespace headrace::testing
