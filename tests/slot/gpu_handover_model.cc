// Which line of docs/protocol.md ("Batches in GPU memory") and which code each action stands for:
//
//   "the line of a slot means both of its parts"      Begin, Burst, Publish     GpuWorker::Start, FinishBatch; SessionState
//   "DEVICE_MEMORY ... gives the descriptor"          AskForMemory, GetMemory   CopyingSession._new_slot
//   "what lies on the host is taken first"            TakeHostHalf              CopyingSession._copy_next
//   "the GPU writes released behind its copies"       Start; Copy, WriteWord    hr_gpu_copy_start, Ring::LeaveToGpu; CUDA's stream
//   "the client sees by itself"                       Look                      Ring::Find, SeeWhatTheGpuReleased
//   "the daemon looks at its words every millisecond"  Watch                     SessionState::Watch
//   "the memory lives until both sides let it go"     Lose, Unmap, CloseForDead Session::Lose; _release_retired; Scheduler
//
// What both engines share is looked at in handover_model.cc, access by access, and is one step here: doorbells, the `waiting`
// words, a slot's line and `ready`. Leases of the host are left out: a session that copies leases every slot until its copies
// have been made.
#include "tests/slot/gpu_handover_model.h"

#include <algorithm>

namespace headrace::testing {
namespace {

constexpr int kMaxSlots = 3, kMaxJobs = 6, kMaxAhead = 2;
constexpr uint8_t kTorn = 0xFF;          // a part's content while it is written
constexpr uint8_t kExpectedSlot = 0xFF;  // where a look begins

enum Fill : uint8_t { kNoFill, kOnItsWay, kComplete };
enum Rest : uint8_t { kAwake, kWatched, kAsleep };
enum Request : uint8_t { kNoRequest, kSent, kAnswered, kEndOfFile };
enum ClientAt : uint8_t {
  kIdle, kReleaseDropped, kLook, kHandOut, kTakeHostHalf, kAskForMemory, kAwaitMemory, kStart, kDeliver, kPoll, kSendOpen,
  kAwaitOpen, kAwaitSeek, kDead
};
enum Purpose : uint8_t { kTake, kLastLook, kAfterSeek };
// Where a copy's slot lies: in the present ring; in a dead daemon's, held by the client; in one that may be unmapped once the
// stream is idle; in the memory of a dead client, which only CUDA still holds.
enum RingOf : uint8_t { kNoRing, kPresent, kHeld, kRetired, kNobodys };

struct State {
  struct Slot {
    uint8_t ready, released, line, host, device;             // the memfd, the GPU's memory
    uint8_t own, fill, fill_ticket, fill_cursor, abandoned;  // the daemon's
    uint8_t late;                                            // cursor + 1 of a burst that nobody waits for
    uint8_t leased, left, living;                            // the client's
  } slot[kMaxSlots];
  struct Job {
    uint8_t ring, slot, ticket, cursor, copied, written;
  } stream[kMaxJobs];  // of the client: copies out of a slot, then the word

  uint8_t daemon_word, daemon_lives, session, closed, rest, daemon_cursor, next_ticket, last_slot;
  uint8_t client_at, purpose, round, at, later, seen_ready, seen_released, has_seen, found, dead, ring, mapped, wanted,
      cursor, expected;
  uint8_t held, retired;  // rings of dead daemons
  uint8_t ahead[kMaxAhead], num_ahead;
  uint8_t open, open_cursor, seek, seek_ticket, memory;
  uint8_t crashes, seeks, deadlines;  // left
  uint8_t due;                        // what the trainer must get next, whatever the two sides think
};

class Explorer : StateSearch<State> {
 public:
  Explorer(const GpuBounds& bounds, GpuMutation mutation) : bounds_(bounds), mutation_(mutation) {}

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
    Stream(state);
    Client(state);
    Trainer(state);
  }

  bool IsGoal(const State& state) const override {
    if (state.client_at == kDead) return !state.session;
    return state.client_at == kIdle && state.due == bounds_.batches;
  }

  bool Is(GpuMutation mutation) const { return mutation_ == mutation; }

  // --- the daemon

  static bool IsFree(const State::Slot& slot) { return slot.fill == kNoFill && slot.released == slot.own; }

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

  static void WakeUp(State* s) { s->rest = s->daemon_word = 0; }

  static void EndFill(State::Slot* slot) { slot->fill = slot->fill_ticket = slot->fill_cursor = slot->abandoned = 0; }

  static void EndDaemonSide(State* s) {
    for (State::Slot& slot : s->slot) {
      EndFill(&slot);
      slot.own = slot.late = 0;
    }
    s->session = s->closed = s->rest = s->daemon_cursor = s->next_ticket = s->last_slot = 0;
  }

  static void EmptyRing(State* s) {
    for (State::Slot& slot : s->slot) slot.ready = slot.released = slot.line = slot.host = slot.device = 0;
    s->daemon_word = 0;
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
      if (!s.ring) {
        EmptyRing(&s);
        MoveJobs(&s, kPresent, kNobodys);
      }
      if (s.open != kNoRequest) s.open = kEndOfFile;
      if (s.seek == kSent) s.seek = kEndOfFile;
      if (s.memory == kSent) s.memory = kEndOfFile;
      Add(s, "the daemon dies", false);
      s = state;
    }
    if (s.open == kSent) {
      s.open = kAnswered;
      s.session = 1;
      s.daemon_cursor = s.open_cursor;
      s.next_ticket = 1;
      s.last_slot = static_cast<uint8_t>(bounds_.slots - 1);
      Add(s, "daemon: answers OPEN");
      s = state;
    }
    if (s.memory == kSent) {
      s.memory = s.session ? kAnswered : kEndOfFile;
      Add(s, "daemon: answers DEVICE_MEMORY");
    }
    if (state.seek == kSent) AnswerSeek(state);
    if (!state.session) return;
    Bursts(state);
    if (state.client_at == kDead) return CloseForDead(state);
    LookForWork(state);
  }

  void Bursts(const State& state) {
    for (int i = 0; i < bounds_.slots; ++i) {
      State s = state;
      State::Slot& slot = s.slot[i];
      if (slot.late != 0) {
        slot.device = static_cast<uint8_t>(slot.late - 1);
        slot.late = 0;
        Add(s, "daemon's GPU: a burst that was abandoned");
        s = state;
      }
      if (slot.fill != kOnItsWay) continue;
      slot.host = slot.device = slot.fill_cursor;
      if (slot.abandoned) {
        EndFill(&slot);
        if (!s.closed) WakeUp(&s);
      } else {
        slot.fill = kComplete;
      }
      Add(s, "daemon's GPU: Burst");
    }
  }

  void LookForWork(const State& state) {
    State s = state;
    if (const int front = Front(s);
        front >= 0 && (s.slot[front].fill == kComplete || Is(GpuMutation::kPublishBeforeTheBurst))) {
      State::Slot& slot = s.slot[front];
      slot.ready = slot.own = slot.fill_ticket;
      slot.host = slot.line = slot.fill_cursor;
      if (slot.fill == kOnItsWay) slot.late = static_cast<uint8_t>(slot.fill_cursor + 1);
      EndFill(&slot);
      Add(s, "daemon: Publish");
      s = state;
    }
    const int free = FindFreeSlot(s);
    if (s.rest != kAwake) {
      if (free >= 0 && s.rest == kWatched) {
        WakeUp(&s);
        return Add(s, "daemon: Watch");
      }
      if (free >= 0 || s.rest == kAsleep || !Is(GpuMutation::kSleepUntilABell)) return;
      s.rest = kAsleep;
      s.daemon_word = 1;
      return Add(s, "daemon: falls asleep");
    }
    if (s.daemon_cursor == bounds_.batches) return;
    if (free < 0) {
      s.rest = kWatched;
      s.daemon_word = 2;
      return Add(s, "daemon: finds no free slot");
    }
    for (const State::Job& job : s.stream) {
      if (job.ring == kPresent && job.slot == free && !job.copied) {
        return Violate("a slot is filled while a copy out of it is pending", "daemon: Begin");
      }
    }
    State::Slot& slot = s.slot[free];
    slot.fill = kOnItsWay;
    slot.fill_ticket = s.next_ticket++;
    slot.fill_cursor = s.daemon_cursor++;
    slot.host = slot.device = kTorn;
    s.last_slot = static_cast<uint8_t>(free);
    Add(s, "daemon: Begin");
  }

  void AnswerSeek(State s) {
    s.seek = kAnswered;
    s.seek_ticket = 0;  // NOT_FOUND
    if (s.session) {
      for (State::Slot& slot : s.slot) {
        if (slot.fill == kOnItsWay) slot.abandoned = 1;
        if (slot.fill == kComplete) EndFill(&slot);
        if (slot.abandoned && Is(GpuMutation::kAbandonedIsFree)) {
          slot.late = static_cast<uint8_t>(slot.fill_cursor + 1);
          EndFill(&slot);
        }
      }
      s.seek_ticket = s.next_ticket;
      s.daemon_cursor = s.cursor;
      WakeUp(&s);
    }
    Add(s, "daemon: AnswerSeek");
  }

  void CloseForDead(State s) {
    bool in_use = false;
    for (State::Slot& slot : s.slot) {
      if (slot.fill == kComplete) EndFill(&slot);
      slot.abandoned = slot.fill == kOnItsWay;
      in_use |= slot.fill == kOnItsWay;
    }
    if (!s.closed) {
      s.closed = 1;
      s.rest = kAwake;
      return Add(s, "daemon: CloseForDead");
    }
    if (in_use) return;
    EndDaemonSide(&s);
    EmptyRing(&s);
    MoveJobs(&s, kPresent, kNobodys);
    Add(s, "daemon: lets the ring and its GPU memory go");
  }

  // --- the client's stream

  static void MoveJobs(State* s, RingOf from, RingOf to) {
    for (State::Job& job : s->stream) {
      if (job.ring == from) job.ring = to;
    }
  }

  void Stream(const State& state) {
    State s = state;
    State::Job& job = s.stream[0];
    if (job.ring == kNoRing) return;
    const bool word_first = Is(GpuMutation::kWordBeforeCopies);
    const bool is_mapped = (job.ring != kHeld || s.held) && (job.ring != kRetired || s.retired);
    const char* const action = job.copied == word_first ? "stream: Copy" : "stream: WriteWord";
    if (!is_mapped) return Violate("the GPU uses memory that was unmapped", action);
    if (word_first ? job.written : !job.copied) {
      if (job.ring == kPresent && s.slot[job.slot].device != job.cursor) {
        return Violate("a copy takes what is not the batch", "stream: Copy");
      }
      job.copied = 1;
    } else {
      if (job.ring == kPresent) s.slot[job.slot].released = job.ticket;
      job.written = 1;
    }
    if (job.copied && job.written) {
      for (int i = 0; i + 1 < kMaxJobs; ++i) s.stream[i] = s.stream[i + 1];
      s.stream[kMaxJobs - 1] = {};
    }
    Add(s, action);
    if (state.client_at != kDead) return;
    s = state;
    for (State::Job& lost : s.stream) lost = {};
    Add(s, "the dead client's stream is dropped", false);
  }

  // --- the client

  bool IsIdle(const State& s) const {
    for (const State::Job& job : s.stream) {
      const bool matters = Is(GpuMutation::kUnmapBehindTheCopies) ? job.ring == kRetired && !job.copied : job.ring != kNoRing;
      if (matters) return false;
    }
    return true;
  }

  // What next() does first, and again behind each batch copied.
  void BeginTake(State s, const char* action) {
    if (s.retired && IsIdle(s)) s.retired = 0;  // Unmap
    const int most_ahead = bounds_.slots - 1;   // prefetch_factor + 1
    if (s.ring && s.num_ahead < most_ahead) {
      BeginLook(&s, kTake);
    } else {
      EndTake(&s);
    }
    Add(s, action);
  }

  void EndTake(State* s) const {
    s->purpose = 0;
    s->client_at = s->num_ahead > 0 ? kDeliver : kSendOpen;
  }

  void BeginLook(State* s, Purpose purpose) const {
    s->client_at = kLook;
    for (State::Slot& slot : s->slot) {
      See(&slot, slot.released);
      if (slot.leased && !slot.left && !slot.living) s->client_at = kReleaseDropped;
    }
    s->purpose = purpose;
    s->round = s->later = s->has_seen = s->seen_ready = s->seen_released = 0;
    s->at = kExpectedSlot;
  }

  static void See(State::Slot* slot, uint8_t released) {
    if (slot->left && released == slot->leased) slot->left = slot->leased = 0;
  }

  void Client(const State& state) {
    State s = state;
    switch (s.client_at) {
      case kReleaseDropped:
        for (State::Slot& slot : s.slot) {
          if (!slot.leased || slot.left || slot.living) continue;
          slot.released = slot.leased;
          slot.leased = 0;
        }
        s.client_at = kLook;
        return Add(s, "client: ReleaseDropped");
      case kLook:
        return Look(s);
      case kHandOut:
        return HandOut(s);
      case kTakeHostHalf:
        return TakeHostHalf(s);
      case kAskForMemory:
        if (s.held) {
          MoveJobs(&s, kHeld, kRetired);
          s.held = 0;
          s.retired = 1;
        }
        s.memory = s.daemon_lives ? kSent : kEndOfFile;
        s.client_at = kAwaitMemory;
        return Add(s, "client: AskForMemory");
      case kAwaitMemory:
        return AwaitMemory(s);
      case kStart:
        return Start(s);
      case kDeliver:
        if (s.ahead[0] > s.due) return Violate("a batch is lost", "client: Deliver");
        if (s.ahead[0] < s.due) return Violate("a batch comes twice", "client: Deliver");
        s.ahead[0] = s.ahead[1];
        s.ahead[1] = 0;
        --s.num_ahead;
        ++s.due;
        s.client_at = kIdle;
        return Add(s, "client: Deliver");
      case kPoll:
        return Poll(s);
      case kSendOpen:
        if (s.daemon_lives) {
          s.open = kSent;
          s.open_cursor = s.cursor;
          s.client_at = kAwaitOpen;
          Add(s, "client: SendOpen");
        }
        return Deadline(state);
      case kAwaitOpen:
        if (s.open == kAnswered) {
          s.open = s.open_cursor = 0;
          s.ring = s.wanted = 1;
          BeginTake(s, "client: Adopt");
        } else if (s.open == kEndOfFile) {
          s.open = s.open_cursor = 0;
          s.client_at = kSendOpen;
          Add(s, "client: OPEN is not answered");
        }
        return Deadline(state);
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
      s.at = 0;
      if (s.later && s.round == 0) {
        s.round = 1;
        return Add(s, "client: Look (again)");
      }
      if (s.later) return Violate("the ring of an honest daemon is called broken", "client: Look");
      return FoundNothing(s);
    }
    State::Slot& slot = s.slot[s.at];
    const bool released_first = Is(GpuMutation::kReleasedBeforeReady);
    if (!s.has_seen) {
      s.has_seen = 1;
      (released_first ? s.seen_released : s.seen_ready) = released_first ? slot.released : slot.ready;
      return Add(s, "client: Look (first word)");
    }
    const uint8_t ready = released_first ? slot.ready : s.seen_ready;
    See(&slot, released_first ? s.seen_released : slot.released);
    s.has_seen = s.seen_ready = s.seen_released = 0;
    if (slot.leased) {
      if (ready != slot.leased) return Violate("the ring of an honest daemon is called broken", "client: Look");
    } else if (ready == s.wanted) {
      return Found(s, s.at);
    } else if (ready > s.wanted) {
      s.later = 1;
    } else if (ready != 0 && slot.released != ready) {
      slot.released = ready;  // of a sequence before a seek
    }
    ++s.at;
    Add(s, "client: Look (second word)");
  }

  void Found(State s, uint8_t slot) {
    s.at = s.round = s.later = 0;
    if (s.purpose == kAfterSeek) {
      s.client_at = s.purpose = 0;
      return Add(s, "client: Look finds it");
    }
    s.found = slot;
    s.purpose = 0;
    s.client_at = kHandOut;
    Add(s, "client: Look finds it");
  }

  void FoundNothing(State s) {
    s.round = s.later = 0;
    const uint8_t purpose = s.purpose;
    if (purpose == kTake && s.num_ahead == 0) {
      if (s.dead) return Lose(s, kSendOpen, "client: Lose");
      BeginLook(&s, kLastLook);
    } else if (purpose == kTake) {
      EndTake(&s);
    } else if (purpose == kLastLook) {
      s.purpose = 0;
      s.client_at = kPoll;
      if (s.session && s.daemon_word != 0 && FindFreeSlot(s) >= 0) WakeUp(&s);  // by a bell
    } else {
      s.client_at = s.purpose = 0;
    }
    Add(s, "client: Look finds nothing");
  }

  void HandOut(State s) {
    State::Slot& slot = s.slot[s.found];
    slot.leased = s.wanted++;
    slot.living = 1;
    s.cursor = static_cast<uint8_t>(slot.line + 1);
    s.expected = static_cast<uint8_t>((s.found + 1) % bounds_.slots);
    s.client_at = Is(GpuMutation::kHostHalfAfterCopies) ? BehindHostHalf(s) : kTakeHostHalf;
    Add(s, "client: HandOut");
  }

  static ClientAt BehindHostHalf(const State& s) { return s.mapped ? kStart : kAskForMemory; }

  void TakeHostHalf(State s) {
    const auto batch = static_cast<uint8_t>(s.cursor - 1);
    if (s.slot[s.found].host != batch) return Violate("a batch has another's labels", "client: TakeHostHalf");
    if (Is(GpuMutation::kHostHalfAfterCopies)) {
      s.found = 0;
      return BeginTake(s, "client: TakeHostHalf");
    }
    s.client_at = BehindHostHalf(s);
    Add(s, "client: TakeHostHalf");
  }

  void AwaitMemory(const State& state) {
    State s = state;
    if (s.memory == kAnswered) {
      s.memory = kNoRequest;
      s.mapped = 1;
      s.client_at = kStart;
      Add(s, "client: GetMemory");
    } else if (s.memory == kEndOfFile) {
      if (!Is(GpuMutation::kDropWithoutMemory)) --s.cursor;
      Lose(s, kSendOpen, "client: the memory is gone");
    }
    if (state.deadlines > 0) {
      s = state;
      --s.deadlines;
      --s.cursor;
      Lose(s, kIdle, "client: the memory does not come in time");
    }
  }

  void Start(State s) {
    State::Job* job = std::find_if(s.stream, s.stream + kMaxJobs, [](const State::Job& one) { return one.ring == kNoRing; });
    if (job == s.stream + kMaxJobs) return Violate("more copies are on the stream than there are slots", "client: Start");
    State::Slot& slot = s.slot[s.found];
    *job = {kPresent, s.found, slot.leased, static_cast<uint8_t>(s.cursor - 1), 0, 0};
    slot.left = !Is(GpuMutation::kForgetTheGpusSlots);
    slot.living = 0;
    s.ahead[s.num_ahead++] = job->cursor;
    if (Is(GpuMutation::kHostHalfAfterCopies)) {
      s.client_at = kTakeHostHalf;
      return Add(s, "client: Start");
    }
    s.found = 0;
    BeginTake(s, "client: Start");
  }

  void Poll(const State& state) {
    State s = state;
    bool rings = false;  // a batch was published: the daemon has sent a byte
    for (const State::Slot& slot : s.slot) rings |= slot.ready == s.wanted;
    if (!s.session) s.dead = 1;
    if (rings || s.dead) BeginTake(s, "client: Poll");
    Deadline(state);
  }

  // Ends the call without a batch.
  void Deadline(State s) {
    if (s.deadlines == 0) return;
    --s.deadlines;
    s.purpose = 0;
    s.client_at = kIdle;
    Add(s, "the call's deadline", false);
  }

  // The daemon sees the end of file; whatever it still does there, nobody looks at. The copies out of the old ring run on.
  void Lose(State s, ClientAt next, const char* action) {
    for (State::Slot& slot : s.slot) slot.leased = slot.left = slot.living = 0;
    EndDaemonSide(&s);
    EmptyRing(&s);
    if (s.mapped) {
      MoveJobs(&s, kPresent, kHeld);
      s.held = 1;
    }
    s.ring = s.mapped = s.dead = s.purpose = s.wanted = s.expected = s.found = 0;
    s.open = s.open_cursor = s.seek = s.seek_ticket = s.memory = 0;
    s.client_at = next;
    Add(s, action);
  }

  void AwaitSeek(const State& state) {
    State s = state;
    if (s.seek == kAnswered && s.seek_ticket != 0) {
      s.wanted = s.seek_ticket;
      s.seek = s.seek_ticket = 0;
      BeginLook(&s, kAfterSeek);
      Add(s, "client: the seek is answered");
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
    if (s.client_at == kDead) return;
    if (bounds_.client_dies) {
      for (State::Slot& slot : s.slot) slot.leased = slot.left = slot.living = 0;
      MoveJobs(&s, kHeld, kNobodys);
      MoveJobs(&s, kRetired, kNobodys);
      s.client_at = kDead;
      s.purpose = s.round = s.at = s.later = s.seen_ready = s.seen_released = s.has_seen = s.found = s.dead = s.ring = 0;
      s.mapped = s.wanted = s.cursor = s.expected = s.held = s.retired = s.num_ahead = 0;
      s.ahead[0] = s.ahead[1] = s.open = s.open_cursor = s.seek = s.seek_ticket = s.memory = s.due = 0;
      Add(s, "the client dies", false);
      s = state;
    }
    if (s.client_at != kIdle) return;
    if (s.due < bounds_.batches) {
      if (s.open != kNoRequest && s.num_ahead == 0) {
        s.client_at = kAwaitOpen;
        Add(s, "trainer: next");
      } else {
        BeginTake(s, "trainer: next");
      }
    }
    if (s.seeks == 0) return;
    for (const int cursor : {0, bounds_.batches - 1}) {
      s = state;
      --s.seeks;
      s.cursor = s.due = static_cast<uint8_t>(cursor);
      if (!Is(GpuMutation::kAheadSurvivesSeek)) s.ahead[0] = s.ahead[1] = s.num_ahead = 0;
      if (s.ring) {
        s.seek = s.daemon_lives ? kSent : kEndOfFile;
        s.client_at = kAwaitSeek;
      } else {
        EndDaemonSide(&s);
        EmptyRing(&s);
        s.open = s.open_cursor = 0;
      }
      Add(s, "trainer: seek", false);
    }
  }

  const GpuBounds bounds_;
  const GpuMutation mutation_;
};

}  // namespace

Finding ExploreGpu(const GpuBounds& bounds, GpuMutation mutation) { return Explorer(bounds, mutation).Run(); }

}  // namespace headrace::testing
