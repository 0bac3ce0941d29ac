// Which line of docs/protocol.md ("The ring") and which code each action stands for:
//
//   Tickets: "writes the batch into the next free slot in ring order, skipping leased ones"  Begin, Fill   SessionState::Begin
//            "then the slot's line, then ready = t"                       PublishLine, PublishReady        SessionState::Publish
//            "waits for a slot with ready = the ticket it wants, hands it out"                Look, HandOut    Ring::Find, HandOut
//            "stores released = t when the last tensor of the batch is gone"   DropLease, ReleaseDropped   Ring::ReleaseDropped
//            "free ⇔ released equals the daemon's own note"                                       IsFree   SessionState::IsFree
//            "a later ticket that is ready while the wanted one is neither ready nor leased"        Look   Ring::Find
//   SEEK:    "the first ticket of the new sequence. A fill under way is abandoned"            AnswerSeek   SessionState::Seek
//            "the client releases whatever older ticket is or becomes ready"                        Look   Ring::Find
//   Doorbells: "Before it waits, a side sets its waiting word to 1, looks once more, then polls"
//                                 SetWord, Look, Poll; RestWord, RestLook   Session::Wait; SessionState::RestUntilReleased
//            "sends one byte after a store only if it finds 1 there"        LookAtWord, SendBell; RingBell   Publish; WakeDaemon
//            "sets 2 at first: it looks by itself every 2 ms ... after a second ... 1"             Watch   SessionState::Watch
//   End:     "reopens at its cursor until its deadline; batches that were ready before are still used"
//                                                              Poll, Lose, SendOpen   Session::Next, Lose, Reopen, Adopt
//            "when the process is dead, the daemon punches the memfd empty"                CloseForDead   Scheduler::CloseLocked
//
// Each access to a shared word is an action of its own where another side can come between. Daemon actions are what the
// scheduler does under its mutex. FindFreeSlot is one look: a slot that is free stays free, so one after the other sees no
// less. One daemon thread fills each slot; the old ring of a lost session is out of the picture, since a closed session
// begins nothing.
#include "tests/slot/handover_model.h"

#include <algorithm>

namespace headrace::testing {
namespace {

constexpr int kMaxSlots = 3;
constexpr uint8_t kTorn = 0xFF;        // a slot's content while it is written
constexpr uint8_t kExpectedSlot = 0xFF;  // where a look begins

enum Fill : uint8_t { kNoFill, kFilling, kComplete };
enum Rest : uint8_t { kAwake, kWatched, kAsleep };
enum DaemonAt : uint8_t { kFree, kRestWord, kRestLook, kPublishReady, kLookAtWord };  // else: what it does next under its mutex
enum Closing : uint8_t { kOpen, kClosed, kGivenBack };
enum Request : uint8_t { kNoRequest, kSent, kAnswered, kEndOfFile };
enum ClientAt : uint8_t {
  kIdle, kReleaseDropped, kLook, kHandOut, kRingBell, kSetWord, kPoll, kClearWord, kSendOpen, kAwaitOpen, kAwaitSeek, kDead
};
enum Purpose : uint8_t { kTake, kDelivered, kLastLook, kAfterSeek };

struct State {
  struct Slot {
    uint8_t ready, released, line, content;              // the memfd
    uint8_t own, fill, fill_ticket, fill_cursor, abandoned;  // the daemon's
    uint8_t leased, living;                              // the client's
  } slot[kMaxSlots];
  uint8_t daemon_word, client_word;  // `waiting`
  uint8_t bell_to_client, bell_to_daemon;

  uint8_t daemon_lives, session, closing, daemon_at, daemon_slot, rest_target, rest, daemon_cursor, next_ticket, last_slot,
      wake_wanted;

  uint8_t client_at, purpose, round, at, later, found, dead, ring, wanted, cursor, expected, given_back, word_seen;
  uint8_t open, open_cursor, seek, seek_ticket;
  uint8_t sibling;  // another session of this process has come to the restarted daemon
  uint8_t crashes, seeks, deadlines;  // left
  uint8_t due;                        // what the trainer must get next, whatever the two sides think
};

class Explorer : StateSearch<State> {
 public:
  Explorer(const Bounds& bounds, Mutation mutation) : bounds_(bounds), mutation_(mutation) {}

  Finding Run() {
    State first{};
    first.daemon_lives = 1;
    first.client_at = kSendOpen;
    first.crashes = static_cast<uint8_t>(bounds_.crashes);
    first.seeks = static_cast<uint8_t>(bounds_.seeks);
    first.deadlines = static_cast<uint8_t>(bounds_.deadlines);
    return Search(first);
  }

 private:
  void Act(const State& state) override {
    Daemon(state);
    Client(state);
    Trainer(state);
  }

  bool IsGoal(const State& state) const override {
    if (state.client_at == kDead) return !state.session;
    return state.client_at == kIdle && state.due == bounds_.batches;
  }

  bool Is(Mutation mutation) const { return mutation_ == mutation; }

  // --- the daemon

  bool IsFree(const State::Slot& slot) const {
    if (slot.fill != kNoFill) return false;
    if (Is(Mutation::kAnyReleaseFrees)) return slot.own == 0 || slot.released != 0;
    return slot.released == slot.own;
  }

  int FindFreeSlot(const State& s) const {
    for (int step = 1; step <= bounds_.slots; ++step) {
      const int slot = (s.last_slot + step) % bounds_.slots;
      if (IsFree(s.slot[slot])) return slot;
    }
    return -1;
  }

  // Of the oldest batch under way, or −1.
  int Front(const State& s) const {
    int front = -1;
    for (int i = 0; i < bounds_.slots; ++i) {
      if (s.slot[i].fill == kNoFill || s.slot[i].abandoned) continue;
      if (front < 0 || s.slot[i].fill_ticket < s.slot[front].fill_ticket) front = i;
    }
    return front;
  }

  static void WakeUp(State* s) {
    s->rest = kAwake;
    s->daemon_word = 0;
  }

  static void EndDaemonSide(State* s) {
    for (State::Slot& slot : s->slot) slot.own = slot.fill = slot.fill_ticket = slot.fill_cursor = slot.abandoned = 0;
    s->session = s->closing = s->daemon_at = s->daemon_slot = s->rest_target = s->rest = s->daemon_cursor = s->next_ticket = 0;
    s->last_slot = s->wake_wanted = s->bell_to_daemon = 0;
  }

  static void EmptyRing(State* s) {
    for (State::Slot& slot : s->slot) slot.ready = slot.released = slot.line = slot.content = 0;
    s->daemon_word = s->client_word = s->bell_to_client = 0;
  }

  void Daemon(const State& state) {
    State s = state;
    if (!s.daemon_lives) {
      s.daemon_lives = 1;
      return Add(s, "the daemon is started again");
    }
    if (s.crashes > 0) {
      --s.crashes;
      s.daemon_lives = 0;
      EndDaemonSide(&s);
      if (!s.ring) EmptyRing(&s);
      if (s.open != kNoRequest) s.open = kEndOfFile;
      if (s.seek == kSent) s.seek = kEndOfFile;
      Add(s, "the daemon dies", false);
      s = state;
    }
    if (s.wake_wanted) {
      s.wake_wanted = 0;
      s.bell_to_client = 1;
      Add(s, "daemon: SendBell");
      s = state;
    }
    switch (s.daemon_at) {
      case kFree:
        return DaemonIsFree(state);
      case kRestWord:
        s.daemon_word = s.rest_target == kWatched ? 2 : 1;
        s.daemon_at = kRestLook;
        if (Is(Mutation::kSleepWithoutLook)) {
          s.rest = s.rest_target;
          s.daemon_at = s.rest_target = 0;
        }
        return Add(s, "daemon: RestWord");
      case kRestLook:
        s.daemon_at = kFree;
        s.rest = s.rest_target;
        s.rest_target = 0;
        if (FindFreeSlot(s) >= 0) WakeUp(&s);
        return Add(s, "daemon: RestLook");
      case kPublishReady:
        if (Is(Mutation::kReadyBeforeLine)) {
          s.slot[s.daemon_slot].line = s.slot[s.daemon_slot].fill_cursor;
        } else {
          s.slot[s.daemon_slot].ready = s.slot[s.daemon_slot].own;
        }
        s.daemon_at = Is(Mutation::kDaemonLooksTooEarly) ? kFree : kLookAtWord;
        return Add(s, "daemon: PublishReady");
      case kLookAtWord:
        s.wake_wanted |= s.client_word;
        s.daemon_at = kFree;
        return Add(s, "daemon: LookAtWord");
    }
  }

  void DaemonIsFree(const State& state) {
    State s = state;
    if (s.open == kSent) {
      s.open = kAnswered;
      s.session = 1;
      s.daemon_cursor = s.open_cursor;
      s.next_ticket = 1;
      s.last_slot = static_cast<uint8_t>(bounds_.slots - 1);
      Add(s, "daemon: answers OPEN");
      s = state;
    }
    if (s.seek == kSent) AnswerSeek(s);
    if (!s.session) return;
    for (int i = 0; i < bounds_.slots; ++i) {
      if (state.slot[i].fill != kFilling) continue;
      s = state;
      State::Slot& slot = s.slot[i];
      if (s.closing == kGivenBack) return Violate("a thread writes into a ring that was given back", "daemon: Fill");
      slot.content = slot.fill_cursor;
      slot.fill = slot.abandoned ? kNoFill : kComplete;
      if (slot.abandoned && s.rest != kAwake && !s.closing) WakeUp(&s);
      if (slot.fill == kNoFill) slot.abandoned = slot.fill_ticket = slot.fill_cursor = 0;
      Add(s, "daemon: Fill");
    }
    if (state.client_at == kDead) return CloseForDead(state);
    s = state;
    if (const int front = Front(s);
        front >= 0 && (s.slot[front].fill == kComplete || Is(Mutation::kPublishBeforeFilling))) {
      State::Slot& slot = s.slot[front];
      slot.own = slot.fill_ticket;
      if (Is(Mutation::kReadyBeforeLine)) {
        slot.ready = slot.own;
      } else {
        slot.line = slot.fill_cursor;
      }
      if (slot.fill == kComplete) slot.fill = kNoFill;
      if (Is(Mutation::kPublishBeforeFilling)) slot.abandoned = slot.fill != kNoFill;  // the thread writes on
      if (Is(Mutation::kDaemonLooksTooEarly)) s.wake_wanted |= s.client_word;
      s.daemon_at = kPublishReady;
      s.daemon_slot = static_cast<uint8_t>(front);
      Add(s, "daemon: PublishLine");
    }
    LookForWork(state);
  }

  void LookForWork(const State& state) {
    State s = state;
    const int free = FindFreeSlot(s);
    if (s.rest == kAwake && s.daemon_cursor < bounds_.batches) {
      if (free >= 0) {
        State::Slot& slot = s.slot[free];
        if (slot.living) return Violate("a slot is filled while it is leased", "daemon: Begin");
        slot.fill = kFilling;
        slot.fill_ticket = s.next_ticket++;
        slot.fill_cursor = s.daemon_cursor++;
        slot.content = kTorn;
        s.last_slot = static_cast<uint8_t>(free);
        Add(s, "daemon: Begin");
      } else {
        StartRest(s, Is(Mutation::kSleepWithoutLook) ? kAsleep : kWatched);
      }
    }
    s = state;
    if (s.bell_to_daemon) {
      s.bell_to_daemon = 0;
      if (s.rest != kAwake && free >= 0) WakeUp(&s);
      Add(s, "daemon: takes a bell");
      s = state;
    }
    if (s.rest != kWatched) return;
    if (free >= 0) {
      WakeUp(&s);
      Add(s, "daemon: Watch");
    } else {
      StartRest(s, kAsleep);
    }
  }

  void StartRest(State s, Rest target) {
    s.rest_target = target;
    s.daemon_at = kRestWord;
    Add(s, "daemon: finds no free slot");
  }

  void AnswerSeek(State s) {
    s.seek = kAnswered;
    if (!s.session) {
      if (s.sibling && Is(Mutation::kIdsBeginAnew)) return Violate("SEEK moves another session", "daemon: AnswerSeek");
      s.seek_ticket = 0;  // NOT_FOUND
      return Add(s, "daemon: AnswerSeek");
    }
    const int front = Front(s);
    if (front >= 0 && Is(Mutation::kSeekNamesAnOldTicket)) {
      s.seek_ticket = s.slot[front].fill_ticket;
    } else {
      for (State::Slot& slot : s.slot) {
        if (slot.fill == kFilling) slot.abandoned = 1;
        if (slot.fill == kComplete) slot.fill = slot.fill_ticket = slot.fill_cursor = 0;
      }
      s.seek_ticket = s.next_ticket;
    }
    s.daemon_cursor = s.cursor;
    if (s.rest != kAwake) WakeUp(&s);
    Add(s, "daemon: AnswerSeek");
  }

  void CloseForDead(State s) {
    bool in_use = false;
    for (State::Slot& slot : s.slot) {
      if (slot.fill == kComplete) slot.fill = slot.fill_ticket = slot.fill_cursor = 0;
      slot.abandoned = slot.fill == kFilling;
      in_use |= slot.fill == kFilling;
    }
    if (s.closing == kOpen) {
      s.closing = kClosed;
      s.rest = kAwake;
      if (Is(Mutation::kGiveBackWhileFilling)) s.closing = kGivenBack;
      return Add(s, "daemon: CloseForDead");
    }
    if (in_use) return;
    EndDaemonSide(&s);
    EmptyRing(&s);
    Add(s, "daemon: the ring is punched empty");
  }

  // --- the client

  void BeginRelease(State s, Purpose purpose, const char* action) {
    s.word_seen = Is(Mutation::kClientLooksTooEarly) ? s.daemon_word : 0;
    ReleaseOrLook(s, purpose, action);
  }

  void ReleaseOrLook(State s, Purpose purpose, const char* action) {
    const auto dropped = [](const State::Slot& slot) { return slot.leased != 0 && !slot.living; };
    if (std::any_of(s.slot, s.slot + bounds_.slots, dropped)) {
      s.client_at = kReleaseDropped;
      s.purpose = purpose;
    } else {
      BeginLook(&s, purpose);
    }
    Add(s, action);
  }

  static void BeginLook(State* s, Purpose purpose) {
    s->client_at = kLook;
    s->purpose = purpose;
    s->round = s->later = 0;
    s->at = kExpectedSlot;
  }

  void Client(const State& state) {
    State s = state;
    switch (s.client_at) {
      case kReleaseDropped:
        for (State::Slot& slot : s.slot) {
          if (!slot.leased || slot.living) continue;
          slot.released = slot.leased;
          slot.leased = 0;
          s.given_back = 1;
          return ReleaseOrLook(s, static_cast<Purpose>(s.purpose), "client: ReleaseDropped");
        }
        return;
      case kLook:
        return Look(s);
      case kHandOut:
        return HandOut(s);
      case kRingBell:
        return RingBell(s);
      case kSetWord:
        s.client_word = 1;
        if (Is(Mutation::kWaitWithoutWord)) {
          s.client_at = kRingBell;
          s.purpose = kLastLook;
        } else {
          BeginLook(&s, kLastLook);
        }
        return Add(s, "client: SetWord");
      case kPoll:
        return Poll(s);
      case kClearWord:
        s.client_word = 0;
        return BeginRelease(s, kTake, "client: ClearWord");
      case kSendOpen:
        if (s.daemon_lives) {
          s.open = kSent;
          s.open_cursor = s.cursor;
          // At the first OPEN nothing was handed out yet.
          if (s.due > 0 && s.due < bounds_.batches && Is(Mutation::kReopenBehindTheCursor)) ++s.open_cursor;
          if (s.due > 0 && Is(Mutation::kReopenBeforeTheCursor)) --s.open_cursor;
          s.client_at = kAwaitOpen;
          Add(s, "client: SendOpen");
        }
        return Deadline(state, kSendOpen);
      case kAwaitOpen:
        return AwaitOpen(s);
      case kAwaitSeek:
        return AwaitSeek(s);
      default:
        return;
    }
  }

  void Look(State s) {
    if (s.at == kExpectedSlot) {
      s.at = 0;
      const State::Slot& slot = s.slot[s.expected];
      if (slot.ready == s.wanted && !slot.leased) return Found(s, s.expected);
      return Add(s, "client: Look (expected slot)");
    }
    if (s.at == bounds_.slots) {
      if (s.later && s.round == 0 && !Is(Mutation::kLookOnce)) {
        s.round = 1;
        s.at = 0;
        return Add(s, "client: Look (again)");
      }
      if (s.later) return Violate("the ring of an honest daemon is called broken", "client: Look");
      return FoundNothing(s);
    }
    State::Slot& slot = s.slot[s.at];
    if (slot.leased) {
      if (slot.ready != slot.leased) return Violate("a slot is filled while it is leased", "client: Look");
    } else if (slot.ready == s.wanted) {
      return Found(s, s.at);
    } else if (slot.ready > s.wanted) {
      s.later = 1;
    } else if (slot.ready != 0 && slot.released != slot.ready && !Is(Mutation::kKeepOlderTickets)) {
      slot.released = slot.ready;
      s.given_back = 1;
    }
    ++s.at;
    Add(s, "client: Look");
  }

  void Found(State s, uint8_t slot) {
    s.at = s.round = s.later = 0;
    s.found = slot;
    if (s.purpose == kAfterSeek) {
      s.client_at = kRingBell;
    } else {
      s.client_at = s.purpose == kTake ? kHandOut : kClearWord;
    }
    Add(s, "client: Look finds it");
  }

  void FoundNothing(State s) {
    s.at = s.round = s.later = 0;
    s.client_at = s.purpose == kLastLook && Is(Mutation::kWaitWithoutWord) ? kSetWord : kRingBell;
    Add(s, "client: Look finds nothing");
  }

  void HandOut(State s) {
    State::Slot& slot = s.slot[s.found];
    if (slot.content == kTorn || slot.content != slot.line) return Violate("a batch comes that is not whole", "client: HandOut");
    if (slot.line > s.due) return Violate("a batch is lost", "client: HandOut");
    if (slot.line < s.due) return Violate("a batch comes twice", "client: HandOut");
    const auto leased = std::count_if(s.slot, s.slot + bounds_.slots, [](const State::Slot& one) { return one.leased != 0; });
    const bool lease = bounds_.leases && (leased + 1 < bounds_.slots || Is(Mutation::kLeaseTheLastSlot));
    if (lease) {
      slot.leased = s.wanted;
      slot.living = 1;
    } else {
      slot.released = s.wanted;
      s.given_back = 1;
    }
    s.expected = static_cast<uint8_t>((s.found + 1) % bounds_.slots);
    s.cursor = static_cast<uint8_t>(slot.line + 1);
    s.found = 0;
    ++s.wanted;
    ++s.due;
    s.client_at = kRingBell;
    s.purpose = kDelivered;
    Add(s, lease ? "client: HandOut (lease)" : "client: HandOut (copy)");
  }

  void RingBell(State s) {
    const bool before_waiting = s.purpose == kLastLook;
    if (s.given_back || before_waiting) {
      s.given_back = 0;
      const uint8_t word = Is(Mutation::kClientLooksTooEarly) ? s.word_seen : s.daemon_word;
      if (s.session && (word == 1 || (before_waiting && word != 0))) s.bell_to_daemon = 1;
    }
    switch (s.purpose) {
      case kTake:
        if (s.dead) return Lose(s, kSendOpen, "client: Lose");
        if (Is(Mutation::kWaitWithoutWord)) {
          BeginLook(&s, kLastLook);
        } else {
          s.client_at = kSetWord;
        }
        break;
      case kLastLook:
        s.client_at = kPoll;
        break;
      default:
        s.client_at = kIdle;
    }
    s.purpose = 0;
    if (s.client_at == kLook) s.purpose = kLastLook;
    Add(s, "client: RingBell");
  }

  void Poll(const State& state) {
    State s = state;
    s.client_at = kClearWord;
    if (s.bell_to_client) {
      s.bell_to_client = 0;
      Add(s, "client: Poll finds a bell");
    } else if (!s.session) {
      s.dead = 1;
      Add(s, "client: Poll finds the end of file");
    }
    s = state;
    s.client_word = 0;
    Deadline(s, kIdle);
  }

  // Ends the call without a batch; `otherwise`: where the client stands afterwards.
  void Deadline(State s, ClientAt at) {
    if (s.deadlines == 0) return;
    --s.deadlines;
    s.purpose = 0;
    s.client_at = at == kSendOpen ? kIdle : at;
    Add(s, "the call's deadline", false);
  }

  void Lose(State s, ClientAt next, const char* action) {
    for (State::Slot& slot : s.slot) slot.leased = slot.living = 0;
    EndDaemonSide(&s);  // the daemon sees the end of file; whatever it still does there, nobody looks at
    EmptyRing(&s);
    s.ring = s.dead = s.purpose = s.wanted = s.expected = s.given_back = s.word_seen = 0;
    s.open = s.open_cursor = s.seek = s.seek_ticket = 0;
    s.client_at = next;
    Add(s, action);
  }

  void AwaitOpen(const State& state) {
    State s = state;
    if (s.open == kAnswered) {
      s.open = s.open_cursor = 0;
      s.ring = s.wanted = 1;
      s.sibling = 0;
      BeginRelease(s, kTake, "client: Adopt");
    } else if (s.open == kEndOfFile) {
      s.open = s.open_cursor = 0;
      s.client_at = kSendOpen;
      Add(s, "client: OPEN is not answered");
    }
    Deadline(state, kIdle);
  }

  void AwaitSeek(const State& state) {
    State s = state;
    if (s.seek == kAnswered && s.seek_ticket != 0) {
      s.wanted = s.seek_ticket;
      s.seek = s.seek_ticket = 0;
      BeginRelease(s, kAfterSeek, "client: the seek is answered");
    } else if (s.seek != kSent) {
      Lose(s, kIdle, "client: the seek finds no daemon");
    }
    if (state.deadlines > 0) {
      s = state;
      --s.deadlines;
      Lose(s, kIdle, "client: the seek is not answered in time");
    }
  }

  // --- the trainer, and what else is nobody's promise

  void Trainer(const State& state) {
    State s = state;
    for (int i = 0; i < bounds_.slots; ++i) {
      if (!state.slot[i].living) continue;
      s = state;
      s.slot[i].living = 0;
      Add(s, "trainer: DropLease", false);
    }
    s = state;
    if (s.client_at != kDead && bounds_.client_dies) {
      for (State::Slot& slot : s.slot) slot.leased = slot.living = 0;
      s.client_at = kDead;
      s.purpose = s.round = s.at = s.later = s.found = s.dead = s.ring = s.wanted = s.cursor = s.expected = 0;
      s.given_back = s.word_seen = s.open = s.open_cursor = s.seek = s.seek_ticket = s.due = s.bell_to_daemon = 0;
      Add(s, "the client dies", false);
      s = state;
    }
    if (s.ring && !s.daemon_lives && s.seeks > 0 && !s.sibling) {
      s.sibling = 1;
      Add(s, "another session of the process is opened after the restart", false);
      s = state;
    }
    if (s.client_at != kIdle) return;
    if (s.due < bounds_.batches) {
      if (s.ring) {
        BeginRelease(s, kTake, "trainer: next");
      } else {
        s.client_at = s.open == kNoRequest ? kSendOpen : kAwaitOpen;
        Add(s, "trainer: next");
      }
    }
    if (s.seeks == 0) return;
    for (const int cursor : {0, bounds_.batches - 1}) {
      s = state;
      --s.seeks;
      s.cursor = s.due = static_cast<uint8_t>(cursor);
      if (s.ring) {
        s.seek = s.daemon_lives ? kSent : kEndOfFile;
        s.client_at = kAwaitSeek;
      } else if (!Is(Mutation::kPendingOpenSurvivesSeek)) {
        EndDaemonSide(&s);
        EmptyRing(&s);
        s.open = s.open_cursor = 0;
      }
      Add(s, "trainer: seek", false);
    }
  }

  const Bounds bounds_;
  const Mutation mutation_;
};

}  // namespace

Finding Explore(const Bounds& bounds, Mutation mutation) { return Explorer(bounds, mutation).Run(); }

}  // namespace headrace::testing
