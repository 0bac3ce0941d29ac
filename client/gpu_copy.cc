#include "client/gpu_copy.h"

int hr_gpu_copy_start(const hr_gpu_copy* copy) {
  const hr_cuda_functions& cuda = *copy->cuda;
  for (uint32_t i = 0; i < copy->num_pieces; ++i) {
    const hr_gpu_copy_piece& piece = copy->pieces[i];
    const int code = cuda.cuMemcpyHtoDAsync(piece.to, piece.from, piece.bytes, copy->stream);
    if (code != 0) return code;
  }
  return cuda.cuEventRecord(copy->event, copy->stream);
}
