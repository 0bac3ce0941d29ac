// docs/protocol.md as a state machine small enough to be looked at whole: a client, a daemon, the words they share, and a
// crash between any two accesses to them.
#pragma once

#include "tests/slot/state_search.h"

namespace headrace::testing {

// The protocol with one line of it left out or turned round.
enum class Mutation {
  kNone,
  kWaitWithoutWord,          // client: looks, then sets its `waiting` word, then polls
  kClientLooksTooEarly,      // client: reads the daemon's `waiting` word before it stores `released`
  kDaemonLooksTooEarly,      // daemon: reads the client's `waiting` word before it stores `ready`
  kSleepWithoutLook,         // daemon: sets its `waiting` word to 1 at once and does not look once more
  kPublishBeforeFilling,     // `ready` before the batch is in the slot
  kReadyBeforeLine,          // `ready` before the slot's line
  kAnyReleaseFrees,          // a slot is free when anything was ever released there
  kLeaseTheLastSlot,         // client: no copy where leasing leaves the daemon no slot
  kKeepOlderTickets,         // client: does not release what is ready of the sequence before a seek
  kLookOnce,                 // client: a later ticket in one look is enough for "passed over"
  kSeekNamesAnOldTicket,     // daemon: a fill under way is not abandoned, and its ticket named as the first of the new sequence
  kReopenBehindTheCursor,    // client: OPEN names the cursor + 1
  kReopenBeforeTheCursor,    // client: OPEN names the cursor of the last batch
  kPendingOpenSurvivesSeek,  // client: takes the answer to an OPEN that named the cursor before the seek
  kIdsBeginAnew,             // daemon: a session's number was another session's before the restart
  kGiveBackWhileFilling,     // daemon: the ring of a dead client goes while a thread writes into it
};

struct Bounds {
  int slots = 2;      // 2 … 3
  int batches = 3;    // the last cursor
  int crashes = 0;    // of the daemon; it is started again each time
  int seeks = 0;
  int deadlines = 0;  // calls that end without a batch
  bool client_dies = false;
  bool leases = true;  // batches have a field that is leased; false: only copies
};

// Looks at every state that can be reached within the bounds.
Finding Explore(const Bounds& bounds, Mutation mutation = Mutation::kNone);

}  // namespace headrace::testing
