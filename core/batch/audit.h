// Which samples a step holds and what was drawn for each, without decoding any.
#pragma once

#include <string>

#include "core/batch/session_spec.h"

namespace headrace {

// JSON array, one object per sample of this rank's step `step` counted from `start` (as enumerate(loader) counts after an
// iteration that began there), within start's epoch: {"sample", "name", "label", "shard", "crop": [top, left, height,
// width], "flip", "vflip"}; absent keys were not drawn or do not exist. Reads one row and one name per sample.
// OUT_OF_RANGE when the epoch has no such step.
absl::StatusOr<std::string> AuditStep(const SessionSpec& spec, const Cursor& start, uint64_t step);

}  // namespace headrace
