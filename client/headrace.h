/* headrace.h: the client's C interface. A trainer receives batches through it;
 * `headrace.torch.DataLoader` is made of it. How it works inside: docs/client.md.
 *
 * - Threads: one client may be used by many threads; one session by one thread at a time, except
 *   that a batch's tensors may be deleted, and statistics read, on any thread at any time. No call
 *   starts a thread. No call prints.
 * - Forks: a child must not use its parent's clients or sessions (calls return
 *   HR_FAILED_PRECONDITION, closing them does nothing); deleters of the parent's batches are
 *   harmless there. A child opens its own.
 * - Blocking: only calls with `timeout_ms` (not negative) block, at most that long; they return
 *   HR_INTERRUPTED when a signal handler ran on the calling thread. After that or
 *   HR_DEADLINE_EXCEEDED the same call can be made again; hr_session_next goes on where it stopped.
 * - Memory: when a few bytes are refused the process stops; large allocations are checked.
 */
#ifndef HEADRACE_H_
#define HEADRACE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#define HR_API __attribute__((visibility("default")))

/* clang-format off */
/* Canonical codes (gRPC's and Abseil's numbers; a daemon may answer any of them) and two of our own. */
enum hr_code {
  HR_OK = 0, HR_INVALID_ARGUMENT = 3, HR_DEADLINE_EXCEEDED = 4, HR_NOT_FOUND = 5,
  HR_PERMISSION_DENIED = 7, HR_RESOURCE_EXHAUSTED = 8, HR_FAILED_PRECONDITION = 9,
  HR_OUT_OF_RANGE = 11, HR_UNIMPLEMENTED = 12, HR_INTERNAL = 13, HR_UNAVAILABLE = 14,
  HR_DATA_LOSS = 15,
  HR_INTERRUPTED = 100, /* a signal handler ran: handle it, call again */
  HR_BAD_SAMPLE = 101   /* the batch held an undecodable sample under on_bad_sample="fail"; the
                           cursor is behind it */
};
/* clang-format on */

typedef struct hr_client hr_client;   /* one per process and daemon: the control connection */
typedef struct hr_session hr_session; /* one subscription: a ring of batches */

/* The message of this thread's last failed call; never NULL; valid until the thread's next call.
 * For HR_BAD_SAMPLE: the JSON of docs/protocol.md. */
HR_API const char* hr_last_error(void);
HR_API const char* hr_version(void);

/* How to reach a daemon. Zero-initialise; strings are copied. */
typedef struct hr_connect_options {
  /* A path, or "@name" for an abstract name; required. */
  const char* socket;
  /* NULL: somebody else's daemon. Else a private daemon: when nobody listens at `socket` (which
   * must be abstract), this process binds it and starts `executable serve --private …` with the
   * listening socket as descriptor 3 (docs/operations.md). Also after the daemon's death. */
  const char* executable;
  /* Further arguments for it, NULL-terminated, or NULL. */
  const char* const* arguments;
  /* Private daemon: how long it stays after its last connection. */
  int32_t grace_ms;
} hr_connect_options;

/* Connects and says HELLO. Waits for a listener until the timeout. HR_PERMISSION_DENIED: the peer
 * is neither this user's, nor root's, nor of the owner of the socket's folder, or it refused us.
 * HR_FAILED_PRECONDITION: another protocol version. HR_UNAVAILABLE: a private daemon did not start
 * in three tries; the message is its own. */
HR_API int hr_client_open(const hr_connect_options* options, int timeout_ms, hr_client** out);
/* Closes the control connection. Sessions and batches live on; a session that must reconnect opens
 * a new one. No other thread may be in a call on this client. NULL is allowed. */
HR_API void hr_client_close(hr_client* client);

/* One cold request (DESCRIBE, SAMPLE, STATS, AUDIT of docs/protocol.md): JSON in, JSON out
 * (NUL-terminated, free with hr_free). `fd` (may be NULL) receives a descriptor that came along,
 * the caller's, or -1. When the daemon has gone it asks the next one, until the timeout. */
HR_API int hr_request(hr_client* client, uint32_t type, const char* json, int timeout_ms,
                      char** answer, int* fd);
HR_API void hr_free(void* memory);

/* Opens a session. `spec_json`: the spec of docs/protocol.md. `dataset_hash`: NULL or the hash it
 * must have (HR_FAILED_PRECONDITION otherwise). HR_RESOURCE_EXHAUSTED when the ring does not fit
 * the daemon's budget. */
HR_API int hr_session_open(hr_client* client, const char* spec_json, const char* dataset_hash,
                           uint64_t epoch, uint64_t position, int timeout_ms, hr_session** out);
/* Ends the session. Batches handed out stay valid until their deleters ran; the ring is unmapped in
 * a later open, next or close of any session of this process. NULL is allowed. */
HR_API void hr_session_close(hr_session* session);

/* What the daemon answered to OPEN: geometry and field layouts (client/protocol.h's
 * hr_open_answer). Valid while open. After a reconnection session_id, first_ticket and offsets may
 * differ; fields, their types and shapes and the dataset do not. */
struct hr_open_answer;
HR_API const struct hr_open_answer* hr_session_info(const hr_session* session);

/* DLPack 0.x structs (dlpack.h of github.com/dmlc/dlpack), repeated so that no header is needed. */
typedef struct {
  int32_t device_type, device_id;
} hr_dl_device;
typedef struct {
  uint8_t code, bits;
  uint16_t lanes;
} hr_dl_type;
typedef struct {
  void* data;
  hr_dl_device device;
  int32_t ndim;
  hr_dl_type dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} hr_dl_tensor;
typedef struct hr_dl_managed_tensor {
  hr_dl_tensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(struct hr_dl_managed_tensor*);
} hr_dl_managed_tensor;

#define HR_BATCH_MAX_FIELDS 16
typedef struct hr_batch {
  uint32_t num_fields, length;        /* samples; 0 is a batch too */
  uint64_t epoch, position;           /* cursor of this step */
  uint64_t next_epoch, next_position; /* and behind it */
  uint32_t bad_samples;               /* skipped or substituted ones */
  uint32_t leased; /* 1: large fields are views of the slot; 0: everything is a copy */
  /* In the order of the spec's fields, then `index`. Each is the caller's: hand it to a consumer or
   * call its deleter once. Large fields: views of the slot, writable; the slot is given back at the
   * next hr_session_next/close after the last of them is deleted. Fields under 64 kB: memory of
   * their own. All are aligned to 64 bytes. HR_TEXT: a uint8 tensor [bytes] as in the slot (ends,
   * then text). */
  hr_dl_managed_tensor* fields[HR_BATCH_MAX_FIELDS];
} hr_batch;

/* The next batch. Looks in the ring first, then waits. Gives back the slots of dropped batches. On
 * the daemon's death reopens at the cursor until the timeout: no batch lost, none twice. When
 * leasing would leave no slot without a living tensor, large fields are copies. Costs about 1 µs
 * when a batch is ready, no system call but for waking a daemon that waits for a free slot.
 * HR_BAD_SAMPLE: the batch has its cursors and no fields.
 * HR_DEADLINE_EXCEEDED says which step it waited for and what the daemon last said.
 * HR_FAILED_PRECONDITION: a restarted daemon has another dataset or version.
 * HR_RESOURCE_EXHAUSTED: no memory for a copy; nothing is lost, drop batches and call again.
 * HR_INTERNAL: the daemon breaks the protocol. The session stays usable after each of them. */
HR_API int hr_session_next(hr_session* session, hr_batch* batch, int timeout_ms);
/* The two halves of hr_session_next for callers that must not wait in the first or hold something
 * (an interpreter's lock) in the second. hr_session_try_next: 1 and the batch's first `max_fields`
 * fields when it is ready, 0 when not, −1 (HR_RESOURCE_EXHAUSTED as above) when there is no memory
 * for copies. hr_session_wait: HR_OK once a batch is ready; errors as hr_session_next,
 * HR_BAD_SAMPLE included, after which the cursor is behind the bad batch. */
HR_API int hr_session_try_next(hr_session* session, hr_batch* batch, uint32_t max_fields);
HR_API int hr_session_wait(hr_session* session, int timeout_ms);
/* For a caller that copies batches onward, into a GPU's memory, and deletes each batch's tensors as
 * soon as its copy is done, whatever becomes of the copy. From now on all fields, small ones too,
 * are views of their slot, and every slot may be leased. */
HR_API void hr_session_lease_all(hr_session* session);
/* Such a caller registers slots with a GPU's driver, which must be undone before they are unmapped.
 * Holds the ring of the newest batch: it stays mapped, beyond a reconnection and the session's end,
 * until it was released as often as it was held. The same ring is the same pointer. */
typedef struct hr_ring hr_ring;
HR_API hr_ring* hr_session_hold_ring(hr_session* session);
/* May unmap, so not to be called by deleters. Does nothing in a forked child. */
HR_API void hr_ring_release(hr_ring* ring);
/* With the GPU engine (hr_open_answer.device_slot_bytes is not 0) a field lies in GPU memory, whose descriptor
 * hr_request(HR_DEVICE_MEMORY, {"session": id}) gives; it is to be mapped by CUDA's cuMemImportFromShareableHandle. That field's
 * tensor has no address in `data` but where it begins in this memory. */
/* The word that the GPU writes its slot's ticket to (client/gpu_copy.h), in the ring's memory: the first 16 KiB. */
HR_API void* hr_ring_released_word(hr_ring* ring, uint32_t slot);
/* Goes on at another cursor. Batches handed out stay valid. HR_OUT_OF_RANGE or HR_INVALID_ARGUMENT:
 * the daemon refused, the session goes on where it was; after any other error it goes on at the new
 * cursor. */
HR_API int hr_session_seek(hr_session* session, uint64_t epoch, uint64_t position, int timeout_ms);

/* Counters since the session was opened. slots_*: as the last hr_session_next left them. */
typedef struct hr_session_stats {
  uint64_t batches, samples, bad_samples, reconnections, waited_ns, copied_batches;
  uint32_t slots, slots_ready, slots_leased, reserved;
} hr_session_stats;
HR_API void hr_session_get_stats(const hr_session* session, hr_session_stats* out);

/* For Python, whose functions are given once by address, so that this library needs no Python. */
typedef struct hr_python_functions {
  int (*PyCapsule_IsValid)(void*, const char*);
  void* (*PyCapsule_GetPointer)(void*, const char*);
  void* (*PyCapsule_New)(void*, const char*, void (*)(void*));
  void* (*PyTuple_New)(intptr_t);
  int (*PyTuple_SetItem)(void*, intptr_t, void*);
  void (*Py_DecRef)(void*);
  void* (*PyObject_CallFunctionObjArgs)(void*, ...);
  void* (*PyErr_NoMemory)(void);
} hr_python_functions;
HR_API void hr_set_python_functions(const hr_python_functions* functions);
/* hr_session_try_next, called with the interpreter's lock: a new tuple of "dltensor" capsules, or,
 * unless `convert` is NULL, of what this callable makes of each; empty when no batch is ready; NULL
 * with an exception set when there is no memory, or `convert` raised it. A capsule that nobody
 * consumes gives its tensor back. batch->fields holds the tensors' addresses. */
HR_API void* hr_session_try_next_capsules(hr_session* session, hr_batch* batch, uint32_t max_fields,
                                          void* convert);

/* To be called at exit: from now on deleters only free memory. */
HR_API void hr_shutdown(void);

#ifdef __cplusplus
}
#endif
#endif /* HEADRACE_H_ */
