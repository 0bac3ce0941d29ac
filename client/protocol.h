/* The structs of docs/protocol.md. C11 and C++20; little-endian; no padding. */
#pragma once

#include <stdint.h>

#include "core/slot/slot_layout.h"

#define HR_MAGIC 0x31435248u
#define HR_PROTOCOL_VERSION 2u
#define HR_MAX_REQUEST_BYTES (1u << 20)
#define HR_MAX_ANSWER_BYTES (16u << 20)

enum hr_message {
  HR_HELLO = 1,
  HR_DESCRIBE = 2,
  HR_SAMPLE = 3,
  HR_STATS = 4,
  HR_AUDIT = 5,
  HR_SEEK = 6,
  HR_OPEN = 7,
  HR_DEVICE_MEMORY = 8,
  HR_ANSWER = 0x100, /* added to the request's type */
  HR_ERROR = 0x1FF
};

struct hr_header {
  uint32_t magic, type, length, request_id;
};
struct hr_hello {
  uint32_t protocol_version, reserved;
};
struct hr_hello_answer {
  uint32_t protocol_version, order_version, pixel_version;
  int32_t daemon_pid;
  char version[32];
};
struct hr_error_body {
  uint32_t code, message_bytes; /* then the message */
};
struct hr_seek {
  uint64_t session_id, epoch, position;
};
struct hr_seek_answer {
  uint32_t first_ticket, reserved;
};
struct hr_open_answer {
  uint64_t session_id, dataset_size;
  char dataset_hash[40]; /* 32 hex digits, NUL-terminated */
  uint32_t order_version, pixel_version;
  uint32_t num_slots, first_ticket, num_fields, batch_size;
  uint64_t slot_bytes, memfd_bytes, error_offset;
  /* With the GPU engine one field, the images, lies in GPU memory (DEVICE_MEMORY): in slot i of it, which begins at
   * i · device_slot_bytes there, at the field's offset. Without it 0. */
  uint64_t device_slot_bytes;
  uint32_t device_field;
  uint32_t may_change; /* 1: under engine "auto" the CPU makes the batches; OPEN with "starved" may give them to the GPU */
  struct hr_field_layout fields[HR_MAX_FIELDS];
};
