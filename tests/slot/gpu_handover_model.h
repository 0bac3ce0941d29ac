// docs/protocol.md, "Batches in GPU memory", as a state machine small enough to be looked at whole: a client, the stream of its
// GPU, which may run arbitrarily late, a daemon with its GPU, and the death of either process between any two steps.
#pragma once

#include "tests/slot/state_search.h"

namespace headrace::testing {

// The protocol with one line of it left out or turned round.
enum class GpuMutation {
  kNone,
  kWordBeforeCopies,      // client: the GPU writes `released` in front of the copies
  kForgetTheGpusSlots,    // client: gives a slot back when its tensors are gone, though copies out of it are on the stream
  kHostHalfAfterCopies,   // client: takes the labels once the copies are started
  kReleasedBeforeReady,   // client: a look reads a slot's `released` word, then `ready`
  kAheadSurvivesSeek,     // client: batches copied ahead of a seek are delivered
  kUnmapBehindTheCopies,  // client: unmaps a ring whose copies are done, though words are still to be written there
  kDropWithoutMemory,     // client: a batch whose GPU memory is not to be had is passed over
  kSleepUntilABell,       // daemon: asks for a bell after a second, which no GPU rings
  kPublishBeforeTheBurst, // daemon: `ready` before its GPU has made the images
  kAbandonedIsFree,       // daemon: a slot whose burst was abandoned is filled again while that may run
};

struct GpuBounds {
  int slots = 2;      // 2 … 3
  int batches = 3;    // the last cursor
  int crashes = 0;    // of the daemon; it is started again each time
  int seeks = 0;
  int deadlines = 0;  // calls that end without a batch
  bool client_dies = false;
};

// Looks at every state that can be reached within the bounds.
Finding ExploreGpu(const GpuBounds& bounds, GpuMutation mutation = GpuMutation::kNone);

}  // namespace headrace::testing
