// The daemon's answer to OPEN, checked: nothing that it says may lead outside of the memfd that
// came with it.
#pragma once

#include <cstdint>
#include <string>

#include "client/protocol.h"
#include "client/status.h"

namespace headrace::client {

// Bytes of one element; 0 for an unknown type. HR_TEXT: 1.
uint32_t ElementBytes(uint32_t dtype);

// Bytes from a field's first to behind its last element when the batch has `length` samples.
// HR_TEXT: all of it.
uint64_t SpanBytes(const hr_field_layout& field, int64_t length);

// INTERNAL, naming what is wrong. Checks sizes, bounds, alignment, types and terminators.
Status ParseOpenAnswer(const std::string& body, hr_open_answer* out);

// Whether two daemons' answers describe the same batches (names, types, shapes, strides; offsets
// may differ).
bool SameBatches(const hr_open_answer& a, const hr_open_answer& b);

}  // namespace headrace::client
