#include "client/open_answer.h"

#include <string.h>

namespace headrace::client {
namespace {

constexpr uint64_t kMaxBytes =
    uint64_t{1} << 46;  // more than any machine's memory, so that sums cannot overflow
constexpr uint64_t kFieldAlignment = 64;

// Whether the elements of a full batch lie within the field's bytes.
bool ElementsFit(const hr_field_layout& field) {
  if (field.dtype == HR_TEXT)
    return field.ndim == 1 && field.bytes >= 4 * static_cast<uint64_t>(field.shape[0]);
  uint64_t elements = 1;
  for (uint32_t i = 0; i < field.ndim; ++i) {
    const uint64_t size = static_cast<uint64_t>(field.shape[i]),
                   stride = static_cast<uint64_t>(field.strides[i]);
    if (size > kMaxBytes || stride > kMaxBytes) return false;  // negative ones too
    if (size == 0) return true;
    if (stride != 0 && size - 1 > kMaxBytes / stride) return false;
    elements += (size - 1) * stride;
    if (elements > kMaxBytes) return false;
  }
  return elements <= field.bytes / ElementBytes(field.dtype);
}

std::string FieldProblem(const hr_open_answer& answer, uint32_t number) {
  const hr_field_layout& field = answer.fields[number];
  const bool on_device = answer.device_slot_bytes > 0 && number == answer.device_field;
  const uint64_t slot_bytes = on_device ? answer.device_slot_bytes : answer.slot_bytes;
  if (memchr(field.name, '\0', sizeof field.name) == nullptr) return "name";
  if (ElementBytes(field.dtype) == 0) return "type";
  if (field.ndim < 1 || field.ndim > 4) return "number of dimensions";
  if (field.shape[0] != static_cast<int64_t>(answer.batch_size)) return "batch size";
  if (field.offset % kFieldAlignment != 0) return "alignment";
  if (field.bytes > slot_bytes || field.offset > slot_bytes - field.bytes)
    return "place in the slot";
  return ElementsFit(field) ? "" : "shape";
}

}  // namespace

uint32_t ElementBytes(uint32_t dtype) {
  switch (dtype) {
    case HR_UINT8:
    case HR_TEXT:
      return 1;
    case HR_FLOAT16:
    case HR_BFLOAT16:
      return 2;
    case HR_FLOAT32:
      return 4;
    case HR_INT64:
    case HR_FLOAT64:
      return 8;
    default:
      return 0;
  }
}

uint64_t SpanBytes(const hr_field_layout& field, int64_t length) {
  if (field.dtype == HR_TEXT) return field.bytes;
  if (length == 0) return 0;
  int64_t last = (length - 1) * field.strides[0];
  for (uint32_t i = 1; i < field.ndim; ++i) {
    if (field.shape[i] == 0) return 0;
    last += (field.shape[i] - 1) * field.strides[i];
  }
  return static_cast<uint64_t>(last + 1) * ElementBytes(field.dtype);
}

Status ParseOpenAnswer(const std::string& body, hr_open_answer* out) {
  const auto malformed = [](const std::string& what) {
    return Error(HR_INTERNAL, "the daemon's answer to OPEN is malformed: " + what);
  };
  if (body.size() != sizeof *out) return malformed(std::to_string(body.size()) + " bytes");
  memcpy(out, body.data(), sizeof *out);
  if (out->num_slots < 1 || out->num_slots > HR_MAX_SLOTS) return malformed("number of slots");
  if (out->num_fields < 1 || out->num_fields > HR_MAX_FIELDS) return malformed("number of fields");
  if (out->batch_size < 1 || out->batch_size > INT32_MAX) return malformed("batch size");
  if (out->first_ticket == 0) return malformed("first ticket");
  if (memchr(out->dataset_hash, '\0', sizeof out->dataset_hash) == nullptr)
    return malformed("dataset hash");
  if (out->slot_bytes % 4096 != 0 || out->slot_bytes < HR_ERROR_BYTES ||
      out->slot_bytes > kMaxBytes / HR_MAX_SLOTS) {
    return malformed("slot size");
  }
  if (out->memfd_bytes != HR_CONTROL_BYTES + out->num_slots * out->slot_bytes)
    return malformed("size of the ring");
  if (out->device_slot_bytes % 4096 != 0 || out->device_slot_bytes > kMaxBytes / HR_MAX_SLOTS)
    return malformed("size of the slots on the GPU");
  if (out->device_slot_bytes > 0 &&
      (out->device_field >= out->num_fields || out->fields[out->device_field].dtype == HR_TEXT)) {
    return malformed("field on the GPU");
  }
  if (out->error_offset > out->slot_bytes - HR_ERROR_BYTES) return malformed("place of the report");
  for (uint32_t i = 0; i < out->num_fields; ++i) {
    const std::string problem = FieldProblem(*out, i);
    if (!problem.empty()) return malformed("field " + std::to_string(i) + ": " + problem);
  }
  return {};
}

bool SameBatches(const hr_open_answer& a, const hr_open_answer& b) {
  if (a.num_fields != b.num_fields || a.batch_size != b.batch_size) return false;
  for (uint32_t i = 0; i < a.num_fields; ++i) {
    const hr_field_layout &x = a.fields[i], &y = b.fields[i];
    if (strcmp(x.name, y.name) != 0 || x.dtype != y.dtype || x.ndim != y.ndim) return false;
    for (uint32_t d = 0; d < x.ndim; ++d) {
      if (x.shape[d] != y.shape[d] || x.strides[d] != y.strides[d]) return false;
    }
  }
  return true;
}

}  // namespace headrace::client
