// A batch on its way into a slot, and the work that decode threads do on it.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/batch/order.h"
#include "core/slot/batch_finish.h"
#include "core/slot/sample_filler.h"

namespace headrace {

// A sample that went wrong, and what follows from it for its batch.
struct BadOutcome {
  enum class Effect { kFailsBatch, kDropped, kSubstituted };
  BadSample sample;
  Effect effect;
};

// While threads hold units of it, they read `start`, `range` and `order`, and write `texts` and the slot's memory, each at its own
// places. Everything else is under the scheduler's mutex.
struct BatchFill {
  Cursor start;
  StepRange range{};
  std::optional<EpochOrder> order;
  uint32_t ticket = 0;
  uint32_t claimed = 0, finished = 0;  // places
  // Places that the GPU leaves to the decode threads. Set by the GPU's thread when it is done with the batch.
  std::vector<uint32_t> left;
  uint32_t left_claimed = 0;
  int units_out = 0;                   // units that threads hold, and the thread that lays the batch out
  bool active = false;     // begun, and neither published nor, if abandoned, left by its last thread
  std::atomic<bool> abandoned = false;  // by a seek or a close: never published; threads look at it between samples
  bool complete = false;   // laid out; waits for the batches before it
  BatchTexts texts;
  std::vector<BadOutcome> bad;
  uint32_t length = 0, status = 0;  // as published: set by FinishBatch
};

// Some places of a batch, filled by one thread in one go.
struct Unit {
  int slot = -1;
  uint32_t first_place = 0, count = 0;
  bool is_left = false;  // of BatchFill::left
};

// Fills units. One per decoding thread; not thread-safe. Blocks on the disk.
class UnitFiller {
 public:
  // Fills the unit's places of `fill` in `slot`; stops early when `fill` is abandoned. What went wrong is appended to `bad`, treated by the session's
  // on_bad_sample: under kSubstitute the place holds another sample (docs/order.md, "Substitutes").
  void Fill(const SessionSpec& spec, const BatchLayout& layout, const Unit& unit, BatchFill* fill, const SlotMemory& slot,
            Verify verify, VerifiedSamples* verified, std::vector<BadOutcome>* bad);

  uint64_t TakeBytesRead() { return filler_.TakeBytesRead(); }

 private:
  bool Substitute(const SessionSpec& spec, const BatchLayout& layout, uint64_t bad_sample,
                  const SampleFiller::Target& target, Verify verify, VerifiedSamples* verified);
  // The label of a sample as bits, for comparing; nothing without a scalar label or a readable row.
  std::optional<uint64_t> Label(const Dataset& dataset, uint64_t sample);

  SampleFiller filler_;
  SampleRow row_;
};

// All places are filled: takes dropped ones out, writes texts and, for a bad batch, its report; sets `length` and `status`.
void FinishBatch(const SessionSpec& spec, const BatchLayout& layout, const SlotMemory& slot, BatchFill* fill);

}  // namespace headrace
