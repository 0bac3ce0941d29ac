// Fields of a batch as DLPack tensors. Their deleters are plain C, lock-free, and may run on any
// thread, with or without Python's lock, during exit and in forked children.
#pragma once

#include <atomic>
#include <cstdint>

#include "client/headrace.h"
#include "client/protocol.h"

namespace headrace::client {

// A tensor that views slot memory. Lives in its ring, which outlives it. The deleter takes one from
// `*living`, and nothing more; nothing at all in a forked child or after ShutDown.
struct ViewTensor {
  hr_dl_managed_tensor managed;
  int64_t shape[4], strides[4];
  uint64_t process;
  std::atomic<uint32_t>* living;
};
void MakeView(const hr_field_layout& field, uint32_t length, uint8_t* data, uint64_t process,
              std::atomic<uint32_t>* living, ViewTensor* out);

// A tensor with memory of its own, aligned to 64 bytes, filled from `data`. nullptr: no memory.
hr_dl_managed_tensor* MakeCopy(const hr_field_layout& field, uint32_t length, const uint8_t* data);

// From now on deleters of views do nothing.
void ShutDown();

}  // namespace headrace::client
