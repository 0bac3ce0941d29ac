// Where each field of a batch lies in a slot. The same numbers go to the client in the answer to OPEN.
#pragma once

#include <cstdint>
#include <vector>

#include "core/batch/session_spec.h"
#include "core/slot/slot_layout.h"

namespace headrace {

struct BatchLayout {
  std::vector<hr_field_layout> fields;  // in the order of spec.fields, then `index` (int64 sample numbers), always
  uint64_t slot_bytes = 0;              // a multiple of 4096; ends with HR_ERROR_BYTES for a bad batch's report
  uint64_t error_offset = 0;
};

// Images first at offset 0, every field aligned to 64 bytes.
absl::StatusOr<BatchLayout> MakeBatchLayout(const SessionSpec& spec);

}  // namespace headrace
