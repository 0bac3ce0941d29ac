#include "client/session.h"

#include <string.h>

#include <algorithm>
#include <vector>

#include "client/open_answer.h"

namespace headrace::client {
namespace {

constexpr int kMaxBrokenInARow = 3;
constexpr size_t kMaxCountedBad = 10000;  // the largest max_bad
constexpr uint32_t kOpenRequestId = 1;
constexpr uint32_t kLastTicket = 0xFFFF0000;  // reopen rather than let 32 bits wrap

// Codes after which another try at OPEN may succeed.
bool WorthAnotherTry(int code, bool opened_before) {
  // A restarted daemon may still hold the memory of the session that it replaces; at first there is
  // no such excuse.
  return code == HR_UNAVAILABLE || (code == HR_RESOURCE_EXHAUSTED && opened_before);
}

void Add(std::atomic<uint64_t>& counter, uint64_t n) {
  counter.store(counter.load(std::memory_order_relaxed) + n,
                std::memory_order_relaxed);  // one writer
}

}  // namespace

Session::Session(std::shared_ptr<Control> control, std::string spec_json, std::string dataset_hash,
                 Cursor cursor)
    : control_(std::move(control)),
      spec_json_(std::move(spec_json)),
      dataset_hash_(std::move(dataset_hash)),
      cursor_(cursor) {}

Session::~Session() { Lose(""); }

Status Session::Open(const Deadline& deadline) { return Reopen(deadline); }

Status Session::Next(hr_batch* batch, const Deadline& deadline) {
  ReapRetired();
  if (batch != nullptr) batch->num_fields = 0;
  int64_t wait_began_ns = 0;
  const auto finish = [&](Status status) {
    if (wait_began_ns != 0) {
      const int64_t waited_ns = NowNs() - wait_began_ns;
      Add(waited_ns_, waited_ns);
      unjudged_ns_ += waited_ns;
    }
    return status;
  };
  bool dead = false;
  if (ring_ != nullptr && wanted_ >= kLastTicket) Lose("the session's tickets are used up");
  for (;;) {
    if (ring_ == nullptr) {
      if (wait_began_ns == 0) wait_began_ns = NowNs();
      Status status = Reopen(deadline);
      if (!status.ok()) return finish(std::move(status));
      dead = false;
    }
    ring_->ReleaseDropped();
    Status status;
    const Taken taken = Take(batch, &status);
    ring_->WakeDaemon(connection_.get());
    if (taken == Taken::kBatch) return finish(std::move(status));
    if (taken == Taken::kBroken) {
      Lose(status.message);
      if (++broken_in_a_row_ < kMaxBrokenInARow) continue;
      broken_in_a_row_ = 0;
      return finish(
          Error(HR_INTERNAL, "the daemon breaks the protocol of the ring: " + status.message));
    }
    if (dead) {
      const std::string reason = ring_->stopping() ? ring_->stop_reason() : "";
      Lose(reason.empty() ? "the daemon (pid " + std::to_string(control_->daemon_pid()) + ") ended"
                          : "the daemon stopped: " + reason);
      continue;
    }
    if (wait_began_ns == 0) wait_began_ns = NowNs();
    if (info_.may_change != 0 && shortage_.IsNotable()) {  // the ring is empty: nothing is lost with it but what is begun
      shortage_.Act();
      starved_ = true;
      Lose("");
      continue;
    }
    status = Wait(deadline);
    // What a dead daemon finished is still good: look once more before the ring is given up.
    dead = status.code == HR_UNAVAILABLE;
    if (!status.ok() && !dead) return finish(std::move(status));
  }
}

Session::Taken Session::Take(hr_batch* batch, Status* status) {
  uint32_t slot = 0;
  switch (ring_->Find(wanted_, &slot)) {
    case Ring::Found::kNotYet:
      return Taken::kNotYet;
    case Ring::Found::kBroken:
      *status = Error(HR_INTERNAL, "ticket " + std::to_string(wanted_) +
                                       " was passed over, or a leased slot was filled");
      return Taken::kBroken;
    case Ring::Found::kReady:
      break;
  }
  const Ring::Line line = ring_->ReadLine(slot);
  if (line.length > info_.batch_size) {
    *status = Error(HR_INTERNAL, "a batch of " + std::to_string(line.length) + " samples");
    return Taken::kBroken;
  }
  if (line.status != 0) {
    *status = BadSample(line, slot, batch);
  } else if (batch != nullptr) {
    *status = HandOut(line, slot, HR_MAX_FIELDS, batch);
  }
  return Taken::kBatch;
}

bool Session::TryNext(uint32_t max_fields, hr_batch* batch, Status* status) {
  ReapRetired();
  if (ring_ == nullptr || wanted_ >= kLastTicket) return false;
  ring_->ReleaseDropped();
  uint32_t slot = 0;
  if (ring_->Find(wanted_, &slot) != Ring::Found::kReady) {
    ring_->WakeDaemon(connection_.get());  // the caller may have other things to do than to wait
    return false;
  }
  const Ring::Line line = ring_->ReadLine(slot);
  if (line.length > info_.batch_size || line.status != 0) return false;
  *status = HandOut(line, slot, max_fields, batch);
  if (!status->ok()) return false;
  ring_->WakeDaemon(connection_.get());
  return true;
}

Status Session::HandOut(const Ring::Line& line, uint32_t slot, uint32_t max_fields,
                        hr_batch* batch) {
  std::vector<uint64_t> counted;
  for (uint32_t i = 0; i < std::min(line.counted_bad, HR_MAX_COUNTED_BAD); ++i)
    counted.push_back(ring_->ReadCountedBad(slot, i));
  Status status = ring_->HandOut(slot, wanted_, line.length, max_fields, batch);
  if (!status.ok()) return status;  // no memory for copies: nothing has moved
  if (batch->leased == 0 && line.length > 0) Add(copied_batches_, 1);
  batch->epoch = line.epoch;
  batch->position = line.position;
  batch->next_epoch = line.next_epoch;
  batch->next_position = line.next_position;
  batch->bad_samples = line.bad_samples;
  if (counted_bad_.size() < kMaxCountedBad) counted_bad_.insert(counted.begin(), counted.end());
  Advance(line);
  return status;
}

void Session::Advance(const Ring::Line& line) {
  cursor_ = {line.next_epoch, line.next_position};
  broken_in_a_row_ = 0;
  Add(batches_, 1);
  Add(samples_, line.length);
  Add(bad_samples_, line.bad_samples);
  slots_leased_.store(ring_->num_leased(), std::memory_order_relaxed);
  slots_ready_.store(ring_->CountReady(wanted_ + 1), std::memory_order_relaxed);
  ++wanted_;
  if (unjudged_ns_ == 0) return;
  // The first batches are waited for while the ring is being filled.
  if (info_.may_change != 0 && wanted_ - first_wanted_ > info_.num_slots) shortage_.Waited(NowNs(), unjudged_ns_);
  unjudged_ns_ = 0;
}

Status Session::BadSample(const Ring::Line& line, uint32_t slot, hr_batch* batch) {
  if (batch != nullptr) {
    *batch = {};
    batch->epoch = line.epoch;
    batch->position = line.position;
    batch->next_epoch = line.next_epoch;
    batch->next_position = line.next_position;
    batch->bad_samples = line.bad_samples;
  }
  std::string report = ring_->ReadReport(slot);
  if (report.empty()) report = "{\"message\": \"status " + std::to_string(line.status) + "\"}";
  ring_->Release(slot, wanted_);
  Advance(line);
  return Error(HR_BAD_SAMPLE, std::move(report));
}

Status Session::Wait(const Deadline& deadline) {
  uint32_t slot;
  ring_->SetWaiting(true);
  // Once more after the word is set: the daemon may have stored the ticket before it could see it.
  if (ring_->Find(wanted_, &slot) != Ring::Found::kNotYet) {
    ring_->SetWaiting(false);
    return {};
  }
  ring_->WakeDaemon(connection_.get(), /*before_waiting=*/true);
  Status status = connection_->WaitDoorbell(deadline);
  ring_->SetWaiting(false);
  if (status.code == HR_DEADLINE_EXCEEDED) {
    return DeadlinePassed(deadline, "the daemon (pid " + std::to_string(control_->daemon_pid()) +
                                        ") is connected but has not filled it");
  }
  return status;
}

Status Session::DeadlinePassed(const Deadline& deadline, const std::string& state) const {
  std::string message = "no batch at epoch " + std::to_string(cursor_.epoch) + ", position " +
                        std::to_string(cursor_.position) + " within " +
                        std::to_string(deadline.timeout_ms()) + " ms: ";
  if (!lost_because_.empty()) message += lost_because_ + "; ";
  if (!last_try_.empty() && last_try_ != state) message += "the last try: " + last_try_ + "; ";
  return Error(HR_DEADLINE_EXCEEDED, message + state);
}

void Session::Lose(const std::string& why) {
  connection_.reset();
  if (ring_ != nullptr) ring_->ReleaseDropped();
  Retire(std::move(ring_));
  ReapRetired();
  if (!why.empty()) lost_because_ = why;
}

Status Session::Reopen(const Deadline& deadline) {
  Backoff backoff;
  for (;;) {
    Status status = OpenOnce(deadline);
    if (status.ok()) {
      if (!lost_because_.empty()) Add(reconnections_, 1);
      opened_before_ = true;
      lost_because_.clear();
      last_try_.clear();
      return status;
    }
    if (status.code == HR_INTERRUPTED) return status;
    if (status.code != HR_DEADLINE_EXCEEDED) {
      connection_.reset();
      if (!WorthAnotherTry(status.code, opened_before_)) return status;
      last_try_ = status.message;
      if (!deadline.passed()) {
        Status slept = backoff.Wait(deadline);
        if (!slept.ok()) return slept;
        continue;
      }
    }
    return DeadlinePassed(deadline, status.message);
  }
}

Status Session::OpenOnce(const Deadline& deadline) {
  if (connection_ == nullptr) {
    Status status = control_->Establish(deadline);
    if (status.ok()) status = control_->ConnectSession(&connection_);
    if (status.ok()) status = SendOpen(deadline);
    if (!status.ok()) {
      connection_.reset();
      return status;
    }
  }
  std::string body;
  Descriptor memfd;
  Status status = connection_->Receive(HR_OPEN, kOpenRequestId, &body, &memfd, deadline);
  if (status.code == HR_DEADLINE_EXCEEDED) status.message = "the daemon has not answered OPEN";
  return status.ok() ? Adopt(body, memfd) : status;
}

Status Session::SendOpen(const Deadline& deadline) {
  std::string body = "{\"spec\": " + spec_json_ + ", \"dataset_hash\": ";
  body += dataset_hash_.empty() ? "null" : "\"" + dataset_hash_ + "\"";
  body += ", \"epoch\": " + std::to_string(cursor_.epoch) +
          ", \"position\": " + std::to_string(cursor_.position);
  if (!counted_bad_.empty()) {
    char before = '[';
    body += ", \"counted_bad\": ";
    for (uint64_t sample : counted_bad_) {
      body += before + std::to_string(sample);
      before = ',';
    }
    body += "]";
  }
  if (starved_) body += ", \"starved\": true";
  body += "}";
  return connection_->Send(HR_OPEN, kOpenRequestId, body.data(), body.size(), deadline);
}

Status Session::Adopt(const std::string& body, const Descriptor& memfd) {
  hr_open_answer answer;
  Status status = ParseOpenAnswer(body, &answer);
  if (!status.ok()) return status;
  if (!dataset_hash_.empty() && dataset_hash_ != answer.dataset_hash) {
    return Error(HR_FAILED_PRECONDITION,
                 "the dataset changed: " + dataset_hash_ + " → " + answer.dataset_hash);
  }
  if (opened_before_) {
    if (answer.order_version != info_.order_version ||
        answer.pixel_version != info_.pixel_version) {
      return Error(
          HR_FAILED_PRECONDITION,
          "the daemon's version changed: order version " + std::to_string(info_.order_version) +
              " → " + std::to_string(answer.order_version) + ", pixel version " +
              std::to_string(info_.pixel_version) + " → " + std::to_string(answer.pixel_version) +
              "; batches would not continue as they began");
    }
    if (!SameBatches(answer, info_)) {
      return Error(HR_FAILED_PRECONDITION,
                   "the daemon's version changed: its batches have other shapes or types");
    }
  }
  status = Ring::Map(answer, memfd, &ring_);
  if (!status.ok()) return status;
  if (lease_all_) ring_->LeaseAll();
  info_ = answer;
  dataset_hash_ = answer.dataset_hash;
  wanted_ = first_wanted_ = answer.first_ticket;
  slots_.store(answer.num_slots, std::memory_order_relaxed);
  return {};
}

void Session::LeaseAll() {
  lease_all_ = true;
  if (ring_ != nullptr) ring_->LeaseAll();
}

Ring* Session::HoldRing() {
  if (ring_ != nullptr) ring_->Hold();
  return ring_.get();
}

Status Session::Seek(Cursor cursor, const Deadline& deadline) {
  const bool waits_for_open = ring_ == nullptr;
  const Cursor before = cursor_;
  cursor_ = cursor;
  if (waits_for_open) {  // OPEN will name the new cursor; one that is under way named the old one
    connection_.reset();
    return {};
  }
  const hr_seek seek = {info_.session_id, cursor.epoch, cursor.position};
  std::string body;
  Status status =
      control_->Request(HR_SEEK, &seek, sizeof seek, /*retry=*/false, deadline, &body, nullptr);
  hr_seek_answer answer;
  if (status.ok() && body.size() != sizeof answer) {
    status = Error(HR_INTERNAL,
                   "the daemon's answer to SEEK has " + std::to_string(body.size()) + " bytes");
  }
  if (status.ok()) {
    memcpy(&answer, body.data(), sizeof answer);
    wanted_ = first_wanted_ = answer.first_ticket;
    ring_->ReleaseDropped();
    uint32_t slot;
    (void)ring_->Find(wanted_, &slot);  // gives back what was ready of the old sequence
    ring_->WakeDaemon(connection_.get());
    return status;
  }
  switch (status.code) {
    case HR_INVALID_ARGUMENT:
    case HR_OUT_OF_RANGE:
      cursor_ = before;  // the daemon goes on where it was
      return status;
    case HR_NOT_FOUND:
    case HR_UNAVAILABLE:
      Lose("the daemon ended");  // the next one is told the cursor with OPEN
      return {};
    default:
      Lose("a seek was not answered");  // unknown which sequence comes: OPEN settles it
      return status;
  }
}

hr_session_stats Session::stats() const {
  const auto load = [](const auto& counter) { return counter.load(std::memory_order_relaxed); };
  return {load(batches_),      load(samples_),
          load(bad_samples_),  load(reconnections_),
          load(waited_ns_),    load(copied_batches_),
          load(slots_),        load(slots_ready_),
          load(slots_leased_), 0};
}

}  // namespace headrace::client
