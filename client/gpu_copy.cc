#include "client/gpu_copy.h"

#include "client/ring.h"

int hr_gpu_copy_start(const hr_gpu_copy* copy) {
  const hr_cuda_functions& cuda = *copy->cuda;
  for (uint32_t i = 0; i < copy->num_pieces; ++i) {
    const hr_gpu_copy_piece& piece = copy->pieces[i];
    const int code = piece.from_gpu != 0
                         ? cuda.cuMemcpyDtoDAsync(piece.to, piece.from, piece.bytes, copy->stream)
                         : cuda.cuMemcpyHtoDAsync(piece.to, reinterpret_cast<const void*>(piece.from),
                                                  piece.bytes, copy->stream);
    if (code != 0) return code;
  }
  int code = cuda.cuEventRecord(copy->event, copy->stream);
  if (code != 0 || copy->released == 0) return code;
  auto* ring = reinterpret_cast<headrace::client::Ring*>(copy->ring);
  code = cuda.cuStreamWriteValue32(copy->stream, copy->released, ring->LeasedTicket(copy->slot), 0);
  if (code == 0) ring->LeaveToGpu(copy->slot);
  return code;
}
