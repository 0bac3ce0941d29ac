// Where each field of a batch lies in a slot. The same numbers go to the client in the answer to OPEN.
#pragma once

#include <cstdint>
#include <vector>

#include "core/batch/session_spec.h"
#include "core/slot/slot_layout.h"

namespace headrace {

struct BatchLayout {
  std::vector<hr_field_layout> fields;  // in the order of spec.fields, then `index` (int64 sample numbers), always
  std::vector<int> dataset_fields;      // indexed like `fields`: the field's number in the dataset, -1 for `index`
  uint64_t slot_bytes = 0;              // a multiple of 4096; ends with HR_ERROR_BYTES for a bad batch's report
  uint64_t error_offset = 0;
  // With the GPU engine the images lie in GPU memory, at the beginning of a slot there: the field's number, −1 without it.
  int device_field = -1;
  uint64_t device_slot_bytes = 0;
};

// Images first at offset 0, every field aligned to 64 bytes. `spec` is valid (SessionSpec::Validate). INVALID_ARGUMENT when
// the texts of a batch could exceed 4 GiB or a slot 1 TiB, with the number of bytes and the key to change.
absl::StatusOr<BatchLayout> MakeBatchLayout(const SessionSpec& spec);

// Bytes of one sample in a field that is no HR_TEXT.
inline uint64_t SampleBytes(const hr_field_layout& field) { return field.bytes / static_cast<uint64_t>(field.shape[0]); }

}  // namespace headrace
