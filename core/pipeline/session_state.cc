#include "core/pipeline/session_state.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace headrace {
namespace {

// Bad samples beyond this many are counted, but no longer reported one by one.
constexpr size_t kMaxReports = 65536;
// A session that nothing is released of for so long asks for a doorbell.
constexpr int64_t kWatchNs = 1'000'000'000;

}  // namespace

SessionState::SessionState(uint64_t id, SessionSpec spec, BatchLayout layout, std::unique_ptr<HostRing> ring, Gpu* gpu,
                           std::shared_ptr<const ShardMap> shard_map, std::shared_ptr<VerifiedSamples> verified, const Cursor& cursor,
                           Wake wake)
    : id_(id), spec_(std::move(spec)), layout_(std::move(layout)), shard_map_(std::move(shard_map)), verified_(std::move(verified)),
      wake_(std::move(wake)), ring_(std::move(ring)), gpu_(gpu),
      volley_size_(gpu == nullptr ? 1 : std::min(static_cast<int>(gpu->lanes().size()), ring_->num_slots() - 1)),
      ring_bytes_(ring_->total_bytes()),
      slots_(static_cast<size_t>(ring_->num_slots())), cursor_(Normalized(spec_, cursor)),
      counted_bad_(spec_.counted_bad.begin(), spec_.counted_bad.end()) {
  for (size_t i = 0; i < slots_.size(); ++i) batches_.push_back(std::make_unique<BatchFill>());
}

void SessionState::SlotPopulated(int slot) {
  slots_[static_cast<size_t>(slot)].populated = true;
  if (rest_ != Rest::kAwake) WakeUp();
}

bool SessionState::IsFree(int slot) const {
  const Slot& own = slots_[static_cast<size_t>(slot)];
  if (!own.populated || batches_[static_cast<size_t>(slot)]->active) return false;
  // The one word of the client that decides anything; whatever it holds, the worst is a slot too early or never.
  return ring_->control()->slots[slot].released.load(std::memory_order_seq_cst) == own.ticket;
}

int SessionState::FindFreeSlot() const {
  const int n = static_cast<int>(slots_.size());
  for (int step = 1; step <= n; ++step) {
    const int slot = (last_slot_ + step) % n;
    if (IsFree(slot)) return slot;
  }
  return -1;
}

bool SessionState::ClientWaits() const { return ring_->control()->client.waiting.load(std::memory_order_seq_cst) != 0; }

int SessionState::CountAhead() const {
  int ahead = 0;
  for (int slot = 0; slot < static_cast<int>(slots_.size()); ++slot) {
    ahead += slots_[static_cast<size_t>(slot)].populated && !IsFree(slot);
  }
  return ahead;
}

int SessionState::FindSlotToFill() const {
  const bool may_hold = volley_size_ > 1 && volley_left_ == 0;
  if (may_hold && CountAhead() > static_cast<int>(slots_.size()) - volley_size_ && !ClientWaits()) return -1;
  return FindFreeSlot();
}

// Where nothing is ahead the trainer may be about to wait: then each batch goes as soon as it can.
void SessionState::BeginVolley() {
  volley_ = nullptr;
  if (volley_size_ == 1 || CountFreeSlots() < volley_size_ || CountAhead() == 0 || ClientWaits()) return;
  volley_ = std::make_shared<Volley>(volley_size_);
  volley_left_ = volley_size_;
}

void SessionState::EndVolley() {
  if (volley_ != nullptr) volley_->Dissolve();
  volley_ = nullptr;
  volley_left_ = 0;
}

int SessionState::CountFreeSlots() const {
  int free = 0;
  for (int slot = 0; slot < static_cast<int>(slots_.size()) && !closed_; ++slot) free += IsFree(slot);
  return free;
}

// Says when to ring, then looks once more: a release before the word was set would ring no bell.
bool SessionState::RestUntilReleased(Rest rest) {
  ring_->control()->daemon.waiting.store(rest == Rest::kWatched ? HR_WAITING_WHILE_YOU_ARE : HR_WAITING,
                                         std::memory_order_seq_cst);
  rest_ = rest;
  watched_since_ns_ = 0;
  rests_long_ = false;
  if (FindSlotToFill() < 0) return true;
  WakeUp();
  return false;
}

void SessionState::WakeUp() {
  rest_ = Rest::kAwake;
  ring_->control()->daemon.waiting.store(0, std::memory_order_seq_cst);
}

SessionState::Work SessionState::LookForWork() {
  if (closed_) return Work::kNone;
  // Empty batches are done at once, and a client can give them back at once: bounded, so that it cannot hold the mutex.
  for (size_t begun = 0; claiming_ < 0; ++begun) {
    if (rest_ == Rest::kAsleep || (watched() && !OnDoorbell())) return Work::kNone;
    if (begun == slots_.size()) return Work::kAgain;
    const int slot = FindSlotToFill();
    if (slot >= 0) {
      if (volley_left_ == 0) BeginVolley();
      volley_left_ = std::max(volley_left_ - 1, 0);
      Begin(slot);
    } else if (RestUntilReleased(Rest::kWatched)) {
      return Work::kNone;
    }
  }
  return Work::kSome;
}

void SessionState::Begin(int slot) {
  BatchFill& fill = batch(slot);
  fill.start = cursor_;
  fill.range = StepAt(spec_, cursor_);
  fill.order.emplace(spec_.dataset->size(), spec_.seed, cursor_.epoch, spec_.shuffle);
  fill.ticket = next_ticket_;
  if (++next_ticket_ == 0) next_ticket_ = 1;  // 0 is what a line holds before its first ticket
  fill.claimed = fill.finished = 0;
  fill.left.clear();
  fill.left_claimed = 0;
  fill.units_out = 0;
  fill.active = true;
  fill.abandoned = false;
  fill.complete = false;
  fill.texts.Reset(layout_);
  fill.bad.clear();
  cursor_ = Normalized(spec_, fill.range.next);
  last_slot_ = slot;
  order_.push_back(slot);
  if (fill.range.count > 0) {
    claiming_ = slot;
  } else {  // an empty part of a last step: a batch like any other, but nobody has to fill it
    EndVolley();
    FinishBatch(spec_, layout_, ring_->memory(slot), &fill);
    fill.complete = true;
    PublishInOrder();
  }
}

Unit SessionState::Claim(uint32_t max_places) {
  BatchFill& fill = batch(claiming_);
  const Unit unit{claiming_, fill.claimed, std::min(max_places, fill.range.count - fill.claimed)};
  fill.claimed += unit.count;
  claimed_places_ += unit.count;
  ++fill.units_out;
  if (fill.claimed == fill.range.count) claiming_ = -1;
  ++threads;
  if (gpu_ != nullptr) ++batches_on_gpu;
  return unit;
}

Unit SessionState::ClaimLeft(uint32_t max_places) {
  const int slot = left_.front();
  BatchFill& fill = batch(slot);
  const auto left = static_cast<uint32_t>(fill.left.size());
  const Unit unit{slot, fill.left_claimed, std::min(max_places, left - fill.left_claimed), true};
  fill.left_claimed += unit.count;
  ++fill.units_out;
  if (fill.left_claimed == left) left_.pop_front();
  ++threads;
  return unit;
}

bool SessionState::Finish(const Unit& unit, std::vector<BadOutcome>* bad, std::vector<uint32_t>* left) {
  --threads;
  if (gpu_ != nullptr && !unit.is_left) --batches_on_gpu;
  BatchFill& fill = batch(unit.slot);
  fill.finished += unit.count;
  if (left != nullptr && !left->empty() && !fill.abandoned) {
    fill.left.swap(*left);
    fill.finished -= static_cast<uint32_t>(fill.left.size());
    left_samples += fill.left.size();
    left_.push_back(unit.slot);
  }
  for (BadOutcome& outcome : *bad) fill.bad.push_back(std::move(outcome));
  bad->clear();
  if (!fill.abandoned && fill.finished == fill.range.count) {
    ++users_;  // until Complete
    return true;
  }
  --fill.units_out;
  if (fill.abandoned && fill.units_out == 0) {
    fill.active = false;
    if (rest_ != Rest::kAwake && !closed_) WakeUp();
  }
  return false;
}

void SessionState::Complete(int slot) {
  --users_;
  BatchFill& fill = batch(slot);
  --fill.units_out;
  if (fill.abandoned) {  // by a Seek while it was being laid out
    fill.active = fill.units_out > 0;
    if (rest_ != Rest::kAwake && !closed_) WakeUp();
    return;
  }
  fill.complete = true;
  PublishInOrder();
}

void SessionState::PublishInOrder() {
  while (!order_.empty() && batch(order_.front()).complete) {
    Publish(order_.front());
    order_.pop_front();
  }
}

// Batches are counted as they are handed out, so that threads do not decide which one goes beyond max_bad: that one fails, and
// counts for nothing. Otherwise the samples that were not bad before go to the client, which names them to the next daemon.
uint32_t SessionState::CountBad(int slot) {
  BatchFill& fill = batch(slot);
  if (spec_.max_bad < 0 || fill.status != 0 || fill.bad.empty()) return 0;
  std::vector<const BadSample*> fresh;
  for (const BadOutcome& outcome : fill.bad) {
    if (counted_bad_.insert(outcome.sample.sample).second) fresh.push_back(&outcome.sample);
  }
  uint8_t* const memory = ring_->slot(slot);
  const size_t before = counted_bad_.size() - fresh.size();
  const size_t room = std::min<size_t>(static_cast<size_t>(spec_.max_bad) - before, HR_MAX_COUNTED_BAD);
  if (fresh.size() > room) {
    BadSample newest = *fresh[room];
    absl::StrAppend(&newest.reason, "; with this batch ", counted_bad_.size(), " samples of this session are bad, max_bad is ",
                    spec_.max_bad, fresh.size() > HR_MAX_COUNTED_BAD ? " (512 more in a batch)" : "");
    for (const BadSample* sample : fresh) counted_bad_.erase(sample->sample);
    WriteBadBatchReport(layout_, spec_.dataset->dir(), newest, memory);
    fill.length = 0;
    fill.status = static_cast<uint32_t>(absl::StatusCode::kDataLoss);
    return 0;
  }
  for (size_t i = 0; i < fresh.size(); ++i) {
    std::memcpy(memory + layout_.error_offset + 8 * i, &fresh[i]->sample, 8);
  }
  return static_cast<uint32_t>(fresh.size());
}

void SessionState::Publish(int slot) {
  BatchFill& fill = batch(slot);
  hr_control* control = ring_->control();
  hr_control::hr_slot_line& line = control->slots[slot];
  line.counted_bad = CountBad(slot);
  line.length = fill.length;
  line.status = fill.status;
  line.bad_samples = static_cast<uint32_t>(fill.bad.size());
  line.epoch = fill.start.epoch;
  line.position = fill.start.position;
  line.next_epoch = fill.range.next.epoch;
  line.next_position = fill.range.next.position;
  slots_[static_cast<size_t>(slot)].ticket = fill.ticket;
  fill.active = false;
  ++batches;
  samples += fill.length;
  bad_samples += fill.bad.size();
  line.ready.store(fill.ticket, std::memory_order_seq_cst);
  if (ClientWaits()) wake_wanted_ = true;
}

void SessionState::AbandonAll() {
  EndVolley();
  for (int slot : order_) {
    BatchFill& fill = batch(slot);
    fill.abandoned = true;
    fill.active = fill.units_out > 0;
  }
  order_.clear();
  left_.clear();
  claiming_ = -1;
}

uint32_t SessionState::Seek(const Cursor& cursor) {
  AbandonAll();
  cursor_ = Normalized(spec_, cursor);
  ++sequence_;
  claimed_places_ = 0;
  if (rest_ != Rest::kAwake && !closed_) WakeUp();
  return next_ticket_;
}

bool SessionState::OnDoorbell() {
  if (closed_ || rest_ == Rest::kAwake || FindSlotToFill() < 0) return false;
  WakeUp();
  return true;
}

bool SessionState::Watch(int64_t now_ns) {
  if (closed_ || !watched()) return false;
  if (OnDoorbell()) return true;
  if (watched_since_ns_ == 0) watched_since_ns_ = now_ns;
  if (now_ns - watched_since_ns_ <= kWatchNs) return false;
  rests_long_ = true;
  return gpu_ == nullptr && !RestUntilReleased(Rest::kAsleep);
}

void SessionState::Close() {
  AbandonAll();
  closed_ = true;
  wake_wanted_ = false;
}

std::unique_ptr<HostRing> SessionState::TakeRing() {
  if (!closed_ || threads > 0 || users_ > 0) return nullptr;
  return std::move(ring_);
}

SessionState::Progress SessionState::progress() const {
  if (claiming_ < 0) return {sequence_, claimed_places_, cursor_, claimed_places_};
  const BatchFill& fill = *batches_[static_cast<size_t>(claiming_)];
  return {sequence_, claimed_places_, fill.start, claimed_places_ - fill.claimed};
}

bool SessionState::TakeWake() { return std::exchange(wake_wanted_, false); }

bool SessionState::FirstReport(uint64_t sample) {
  return reported_.size() < kMaxReports && reported_.insert(sample).second;
}

SessionStats SessionState::Stats() const {
  SessionStats stats;
  stats.id = id_;
  stats.dataset = spec_.dataset->dir();
  stats.rank = spec_.rank;
  stats.world_size = spec_.world_size;
  stats.batches = batches;
  stats.samples = samples;
  stats.bad_samples = bad_samples;
  stats.left_samples = left_samples;
  stats.on_gpu = gpu_ != nullptr;
  stats.decode_ns = decode_ns;
  stats.ring_bytes = ring_ ? ring_bytes_ : 0;
  stats.cursor = cursor_;
  for (size_t i = 0; ring_ && i < slots_.size(); ++i) {
    stats.slots += slots_[i].populated;
    stats.slots_ready += slots_[i].ticket != 0 && !batches_[i]->active &&
                         ring_->control()->slots[i].released.load(std::memory_order_relaxed) != slots_[i].ticket;
  }
  return stats;
}

}  // namespace headrace
