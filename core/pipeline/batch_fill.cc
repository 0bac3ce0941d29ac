#include "core/pipeline/batch_fill.h"

#include <algorithm>
#include <cstring>

#include "core/batch/substitute.h"

namespace headrace {

void UnitFiller::Fill(const SessionSpec& spec, const BatchLayout& layout, const Unit& unit, BatchFill* fill,
                      const SlotMemory& slot, Verify verify, VerifiedSamples* verified, std::vector<BadOutcome>* bad) {
  const uint32_t end = unit.first_place + unit.count;
  for (uint32_t i = unit.first_place; i < end; ++i) {
    const uint32_t place = unit.is_left ? fill->left[i] : i;
    if (fill->abandoned.load(std::memory_order_relaxed)) return;
    const uint64_t position = fill->range.first_position + place;
    const uint64_t sample = fill->order->SampleAt(position);
    const SampleFiller::Target target{slot, place, fill->start.epoch, position, &fill->texts};
    const absl::Status status = filler_.Fill(spec, layout, sample, target, verify, verified);
    if (status.ok()) continue;
    BadOutcome outcome{MakeBadSample(*spec.dataset, sample, place, status), BadOutcome::Effect::kFailsBatch};
    if (spec.on_bad_sample == OnBadSample::kSkip) {
      outcome.effect = BadOutcome::Effect::kDropped;
    } else if (spec.on_bad_sample == OnBadSample::kSubstitute &&
               Substitute(spec, layout, sample, target, verify, verified)) {
      outcome.effect = BadOutcome::Effect::kSubstituted;
    }
    bad->push_back(std::move(outcome));
  }
}

std::optional<uint64_t> UnitFiller::Label(const Dataset& dataset, uint64_t sample) {
  const int field = dataset.FindField("label");
  if (field < 0 || !dataset.ReadRow(sample, &row_).ok()) return std::nullopt;
  const SampleRow::Value& value = row_.values[static_cast<size_t>(field)];
  uint64_t bits;
  switch (dataset.fields()[static_cast<size_t>(field)].kind) {
    case FieldKind::kInt64:
      std::memcpy(&bits, &value.i64, sizeof(bits));
      return bits;
    case FieldKind::kFloat64:
      std::memcpy(&bits, &value.f64, sizeof(bits));
      return bits;
    default:
      return std::nullopt;
  }
}

bool UnitFiller::Substitute(const SessionSpec& spec, const BatchLayout& layout, uint64_t bad_sample,
                            const SampleFiller::Target& target, Verify verify, VerifiedSamples* verified) {
  const uint64_t size = spec.dataset->size();
  const SubstituteOrder order(size, spec.seed, target.epoch, target.position);
  const std::optional<uint64_t> label = Label(*spec.dataset, bad_sample);
  int decoded = 0;
  // First those of the same label, then any.
  for (const bool compare : {true, false}) {
    if (compare && !label) continue;
    const uint64_t tries = compare ? std::min(size, kSubstituteLabelTries) : size;
    for (uint64_t i = 0; i < tries && decoded < kSubstituteDecodeTries; ++i) {
      const uint64_t candidate = order.Candidate(i);
      if (candidate == bad_sample || (compare && Label(*spec.dataset, candidate) != label)) continue;
      ++decoded;
      if (filler_.Fill(spec, layout, candidate, target, verify, verified).ok()) return true;
    }
  }
  return false;
}

void FinishBatch(const SessionSpec& spec, const BatchLayout& layout, const SlotMemory& slot, BatchFill* fill) {
  fill->length = fill->range.count;
  fill->status = 0;
  if (!fill->bad.empty()) {
    // Units end in any order; what the client sees must not depend on that.
    std::sort(fill->bad.begin(), fill->bad.end(),
              [](const BadOutcome& a, const BadOutcome& b) { return a.sample.place < b.sample.place; });
    std::vector<uint32_t> dropped;
    for (const BadOutcome& outcome : fill->bad) {
      if (outcome.effect == BadOutcome::Effect::kFailsBatch) {
        WriteBadBatchReport(layout, spec.dataset->dir(), outcome.sample, slot.host);
        fill->length = 0;
        fill->status = static_cast<uint32_t>(absl::StatusCode::kDataLoss);
        return;
      }
      if (outcome.effect == BadOutcome::Effect::kDropped) dropped.push_back(outcome.sample.place);
    }
    if (!dropped.empty()) fill->length = CompactBatch(layout, dropped, fill->range.count, slot, &fill->texts);
  }
  WriteTexts(layout, fill->texts, fill->length, slot.host);
}

}  // namespace headrace
