#include "core/batch/audit.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "core/augment/draw.h"
#include "core/base/utf8.h"
#include "core/batch/order.h"
#include "core/read/sample_reader.h"

namespace headrace {
namespace {

using Json = nlohmann::ordered_json;

absl::StatusOr<Json> AuditSample(const SessionSpec& spec, const Cursor& start, uint64_t sample, uint64_t position,
                                 SampleRow* row, Draw* draw) {
  const Dataset& dataset = *spec.dataset;
  HEADRACE_RETURN_IF_ERROR(dataset.ReadRow(sample, row));
  Json entry;
  entry["sample"] = sample;
  if (dataset.FindField("name") >= 0) {
    HEADRACE_ASSIGN_OR_RETURN(const std::string name, ReadName(dataset, *row));
    entry["name"] = EscapeToUtf8(name);
  }
  if (const int label = dataset.FindField("label"); label >= 0) {
    const auto& value = row->values[static_cast<size_t>(label)];
    switch (dataset.fields()[static_cast<size_t>(label)].kind) {
      case FieldKind::kInt64:
        entry["label"] = value.i64;
        break;
      case FieldKind::kFloat64:
        entry["label"] = value.f64;
        break;
      default:
        break;  // no scalar, so nothing to print
    }
  }
  entry["shard"] = dataset.Locate(sample).first;
  if (dataset.FindField("image") < 0) return entry;
  DrawSample(spec.recipe, spec.seed, start.epoch, position, static_cast<int>(row->image.oriented_width()),
             static_cast<int>(row->image.oriented_height()), draw);
  if (draw->has_crop) entry["crop"] = {draw->crop.top, draw->crop.left, draw->crop.height, draw->crop.width};
  if (draw->has_flip) entry["flip"] = draw->flip;
  if (draw->has_vflip) entry["vflip"] = draw->vflip;
  return entry;
}

}  // namespace

absl::StatusOr<std::string> AuditStep(const SessionSpec& spec, const Cursor& start, uint64_t step) {
  const uint64_t steps = StepsLeft(spec, start);
  if (step >= steps) {
    return absl::OutOfRangeError(absl::StrCat("epoch ", start.epoch, " has ", steps, " steps from position ",
                                              start.position, " on; step ", step, " is none of them"));
  }
  // Every step before the last takes batch_size · world_size positions, and this one is the last at most.
  const uint64_t global_batch = static_cast<uint64_t>(spec.batch_size) * static_cast<uint64_t>(spec.world_size);
  const Cursor cursor{start.epoch, start.position + step * global_batch};
  const StepRange range = StepAt(spec, cursor);
  const EpochOrder order(spec.dataset->size(), spec.seed, cursor.epoch, spec.shuffle);
  Json entries = Json::array();
  SampleRow row;
  Draw draw;
  for (uint64_t position = range.first_position; position < range.first_position + range.count; ++position) {
    HEADRACE_ASSIGN_OR_RETURN(Json entry,
                              AuditSample(spec, cursor, order.SampleAt(position), position, &row, &draw));
    entries.push_back(std::move(entry));
  }
  return entries.dump();
}

}  // namespace headrace
