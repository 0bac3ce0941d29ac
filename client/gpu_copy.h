// Starting a batch's copies into GPU memory, for headrace/_gpu.py: one call of C, so that no signal handler of Python's comes
// between the copies and the event behind them, and cheaper than each of CUDA's functions through ctypes. CUDA's functions
// are given by address: this library links none of them.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "client/headrace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The CUDA driver's functions of these names. */
typedef struct hr_cuda_functions {
  int (*cuMemcpyHtoDAsync)(uint64_t to, const void* from, size_t bytes, void* stream);
  int (*cuEventRecord)(void* event, void* stream);
  int (*cuMemcpyDtoDAsync)(uint64_t to, uint64_t from, size_t bytes, void* stream);
  int (*cuStreamWriteValue32)(void* stream, uint64_t to, uint32_t value, unsigned flags);
} hr_cuda_functions;

typedef struct hr_gpu_copy_piece {
  uint64_t to; /* address in GPU memory */
  uint64_t from;
  size_t bytes;
  uint64_t from_gpu; /* 1: `from` is an address in GPU memory, too */
} hr_gpu_copy_piece;

typedef struct hr_gpu_copy {
  const hr_cuda_functions* cuda;
  void* stream;
  void* event;
  uint32_t num_pieces, slot;
  /* With the GPU engine the slot is given back behind the copies by the GPU: the address, as the GPU has it, of the word
   * (hr_ring_released_word), and the ring. 0: the caller gives it back, by deleting its tensors. */
  uint64_t released;
  hr_ring* ring;
  hr_gpu_copy_piece pieces[HR_BATCH_MAX_FIELDS];
} hr_gpu_copy;

/* Starts the copies on the stream and records the event behind them. Does not block. The first error's CUresult, or 0; after an
 * error some of the copies may have been started. */
HR_API int hr_gpu_copy_start(const hr_gpu_copy* copy);

#ifdef __cplusplus
}
#endif
