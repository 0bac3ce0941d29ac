// A session whose client writes what it likes into the ring, between any two steps of the daemon.
#include <memory>
#include <vector>

#include "core/pipeline/session_state.h"
#include "tests/fuzz/input.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/tiny_dataset.h"

namespace headrace {
namespace {

using fuzz::Check;
using fuzz::Input;

SessionSpec TakeSpec(Input* input) {
  static const testing::TinyDataset tiny({.samples = 7, .files = 2, .side_px = 8, .columns = true});
  static const std::shared_ptr<const Dataset> dataset = tiny.Open();
  SessionSpec spec;
  spec.dataset = dataset;
  spec.recipe.transforms = {CenterCrop{2, 2}};
  spec.recipe.dtype = DType::kUInt8;
  spec.fields = {"image", "label", "note"};
  spec.batch_size = 1 + static_cast<int>(input->Below(4));
  spec.world_size = 1 + static_cast<int>(input->Below(4));
  spec.rank = static_cast<int>(input->Below(static_cast<uint32_t>(spec.world_size)));
  spec.prefetch_factor = static_cast<int>(input->Below(3));
  spec.on_bad_sample = static_cast<OnBadSample>(input->Below(3));
  spec.last_batch = static_cast<LastBatch>(input->Below(2));
  spec.engine = input->Below(2) == 0 ? Engine::kCpu : Engine::kGpu;
  return spec;
}

Gpu* FakeGpu() {
  static const std::unique_ptr<Gpu> gpu = *testing::FakeGpus().opener()(testing::FakeGpus::Uuid(0), uint64_t{1} << 20, nullptr);
  return gpu.get();
}

// A session and the threads that work for it, one step after the other.
class Driver {
 public:
  explicit Driver(SessionSpec spec) {
    BatchLayout layout = *MakeBatchLayout(spec);
    auto ring = HostRing::Create(spec.prefetch_factor + 2, layout.slot_bytes);
    Check(ring.ok());
    ring_ = ring->get();
    slots_ = ring_->num_slots();
    const auto verified = std::make_shared<VerifiedSamples>(spec.dataset->size());
    Gpu* const gpu = spec.engine == Engine::kGpu ? FakeGpu() : nullptr;
    if (gpu != nullptr) ring_->Attach(*gpu->NewRing(slots_, layout.device_slot_bytes));
    state_ = std::make_unique<SessionState>(1, std::move(spec), std::move(layout), *std::move(ring), gpu, nullptr, verified, Cursor{},
                                            nullptr);
  }

  void Step(Input* input) {
    const uint32_t step = input->Take<uint8_t>() % 12;
    if (ring_ == nullptr) return;
    switch (step) {
      case 0:
        return Poke(input, HR_CONTROL_BYTES);
      case 1:
        return Poke(input, ring_->total_bytes());
      case 2:
        return Release(input);
      case 3:
        return Populate(static_cast<int>(input->Below(static_cast<uint32_t>(slots_))));
      case 4:
        return Claim(input);
      case 5:
        return Fill(input);
      case 6:
        return Complete(input);
      case 7:
        return Seek(input);
      case 8:
        return void(state_->OnDoorbell());
      case 9:
        return void(state_->Watch(now_ns_ += input->Take<uint32_t>()));
      case 10:
        return Ask();
      default:
        return Close(input);
    }
  }

 private:
  void Poke(Input* input, uint64_t bytes) {
    const uint64_t place = input->Take<uint32_t>() % bytes;
    const absl::Span<const uint8_t> piece = input->Bytes(std::min<uint64_t>(1 + input->Below(8), bytes - place));
    std::copy(piece.begin(), piece.end(), reinterpret_cast<uint8_t*>(ring_->control()) + place);
  }

  void Release(Input* input) {
    auto& line = ring_->control()->slots[input->Below(static_cast<uint32_t>(slots_))];
    line.released = line.ready.load();
  }

  void Populate(int slot) {
    Check(ring_->Populate(slot).ok());
    if (!state_->closed()) state_->SlotPopulated(slot);
  }

  void Claim(Input* input) {
    if (state_->HasLeft() && input->Below(2) == 1) {
      units_.push_back(state_->ClaimLeft(1 + input->Below(4)));
      return;
    }
    if (state_->LookForWork() != SessionState::Work::kSome) return;
    const Unit unit = state_->Claim(state_->gpu() != nullptr ? UINT32_MAX : 1 + input->Below(4));
    Check(unit.slot >= 0 && unit.slot < slots_ && unit.count > 0);
    Check(unit.first_place + unit.count <= static_cast<uint32_t>(state_->spec().batch_size));
    // No place belongs to two threads.
    for (const Unit& other : units_) {
      Check(other.slot != unit.slot || other.is_left || other.first_place + other.count <= unit.first_place ||
            unit.first_place + unit.count <= other.first_place);
    }
    for (const int slot : complete_) Check(slot != unit.slot);
    units_.push_back(unit);
  }

  void Fill(Input* input) {
    if (units_.empty()) return;
    const auto at = units_.begin() + input->Below(static_cast<uint32_t>(units_.size()));
    const Unit unit = *at;
    units_.erase(at);
    static UnitFiller filler;
    std::vector<BadOutcome> bad;
    if (state_->gpu() != nullptr && !unit.is_left) {
      std::vector<uint32_t> left;
      for (uint32_t i = 0; i < unit.count; ++i) {
        if (input->Below(2) == 1) left.push_back(unit.first_place + i);
      }
      if (state_->Finish(unit, &bad, &left)) complete_.push_back(unit.slot);
      return TakeRing();
    }
    filler.Fill(state_->spec(), state_->layout(), unit, &state_->batch(unit.slot), ring_->memory(unit.slot), Verify::kOnce,
                state_->verified(), &bad);
    // As if it were damaged.
    if (const uint32_t effect = input->Below(8); effect < 3) {
      BadOutcome outcome{BadSample(), static_cast<BadOutcome::Effect>(effect)};
      outcome.sample.place = unit.is_left ? state_->batch(unit.slot).left[unit.first_place] : unit.first_place;
      bad.push_back(std::move(outcome));
    }
    if (state_->Finish(unit, &bad)) complete_.push_back(unit.slot);
    TakeRing();
  }

  void Complete(Input* input) {
    if (complete_.empty()) return;
    const auto at = complete_.begin() + input->Below(static_cast<uint32_t>(complete_.size()));
    const int slot = *at;
    complete_.erase(at);
    FinishBatch(state_->spec(), state_->layout(), ring_->memory(slot), &state_->batch(slot));
    state_->Complete(slot);
    TakeRing();
  }

  void Seek(Input* input) {
    Cursor cursor;
    cursor.epoch = input->Take<uint64_t>();
    cursor.position = input->Take<uint64_t>();
    (void)state_->Seek(cursor);
  }

  void Ask() {
    (void)state_->TakeWake();
    (void)state_->progress();
    const SessionStats stats = state_->Stats();
    Check(stats.slots <= slots_ && stats.slots_ready <= slots_ && state_->CountFreeSlots() <= slots_);
  }

  void Close(Input* input) {
    if (input->Below(16) != 1) return;  // nothing happens behind it
    state_->Close();
    TakeRing();
  }

  void TakeRing() {
    if (state_->TakeRing() == nullptr) return;
    Check(units_.empty() && complete_.empty());
    ring_ = nullptr;
  }

  std::unique_ptr<SessionState> state_;
  HostRing* ring_ = nullptr;  // null: the session is closed and nobody uses it
  int slots_ = 0;
  int64_t now_ns_ = 1;
  std::vector<Unit> units_;
  std::vector<int> complete_;  // filled, not yet laid out
};

}  // namespace
}  // namespace headrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace;  // NOLINT
  Input input(data, size);
  Driver driver(TakeSpec(&input));
  while (!input.empty()) driver.Step(&input);
  return 0;
}
