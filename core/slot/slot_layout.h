/* The control page and the slots of a session's memfd, as both sides see them. C11 and C++20; little-endian.
 * Specified in docs/protocol.md. The daemon trusts nothing in here that the client can write except, as hints, the two
 * words `released` and `client_waiting`; it keeps its own copy of everything else. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
#include <atomic>
#define HR_ATOMIC_U32 std::atomic<uint32_t>
extern "C" {
#else
#include <stdatomic.h>
#define HR_ATOMIC_U32 _Atomic uint32_t
#endif

#define HR_LAYOUT_VERSION 1u
#define HR_RING_MAGIC 0x474E5248u /* "HRNG" */
#define HR_MAX_SLOTS 64u
#define HR_MAX_FIELDS 16u
#define HR_CONTROL_BYTES 16384u /* slot 0 starts here */
#define HR_ERROR_BYTES 4096u    /* at the end of every slot: UTF-8 JSON, NUL-terminated, when status is not OK */
#define HR_MAX_COUNTED_BAD (HR_ERROR_BYTES / 8) /* or, when it is OK, `counted_bad` sample numbers */
#define HR_WAITING 1u              /* in a `waiting` word: send a byte when you have stored something */
#define HR_WAITING_WHILE_YOU_ARE 2u /* in the daemon's: it looks by itself every few ms; send a byte before you wait */
#define HR_SMALL_FIELD_BYTES 65536u /* smaller fields are handed out as copies: keeping them pins no slot */

enum hr_dtype {
  HR_UINT8 = 0, HR_FLOAT16 = 1, HR_BFLOAT16 = 2, HR_FLOAT32 = 3, HR_INT64 = 4, HR_FLOAT64 = 5,
  HR_TEXT = 6 /* uint32 ends[shape[0]] (offset behind each text), then the UTF-8 bytes */
};

/* One field of a batch in a slot. shape[0] is batch_size; a batch may be shorter. Strides in elements. */
struct hr_field_layout {
  char name[32]; /* NUL-terminated */
  uint32_t dtype, ndim;
  int64_t shape[4], strides[4];
  uint64_t offset, bytes; /* in the slot */
};

/* Words written by one side each, 128 bytes apart. */
struct hr_control {
  struct {
    uint32_t magic, layout_version, num_slots, reserved[29];
  } fixed;
  struct {
    HR_ATOMIC_U32 waiting;  /* 0, HR_WAITING or HR_WAITING_WHILE_YOU_ARE */
    HR_ATOMIC_U32 stopping; /* 1: the daemon ends; `reason` says why */
    char reason[120];
  } daemon;
  struct {
    HR_ATOMIC_U32 waiting; /* 0 or HR_WAITING */
    uint32_t reserved[31];
  } client;
  struct hr_slot_line {
    /* daemon's half */
    HR_ATOMIC_U32 ready; /* ticket of the batch in the slot, stored last (release) */
    uint32_t length;     /* samples in the batch, 0 … batch_size */
    uint32_t status;     /* 0, or a canonical code (DATA_LOSS for a bad sample under `fail`): the report is in the slot */
    uint32_t bad_samples;
    uint64_t epoch, position;           /* the cursor at which this step starts */
    uint64_t next_epoch, next_position; /* the cursor behind it */
    uint32_t counted_bad; /* under max_bad: sample numbers (u64) at error_offset that count from this batch on */
    uint32_t reserved0[3];
    /* client's half */
    HR_ATOMIC_U32 released; /* ticket that the client has given back; a second store is a no-op */
    uint32_t reserved1[15];
  } slots[HR_MAX_SLOTS];
};

#ifdef __cplusplus
}
static_assert(sizeof(hr_control) <= HR_CONTROL_BYTES);
static_assert(sizeof(hr_control::hr_slot_line) == 128);
static_assert(std::atomic<uint32_t>::is_always_lock_free);
#endif
