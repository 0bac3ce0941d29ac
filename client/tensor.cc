#include "client/tensor.h"

#include <stdlib.h>
#include <string.h>

#include "client/open_answer.h"
#include "client/process.h"

namespace headrace::client {
namespace {

constexpr int32_t kDlCpu = 1;
enum : uint8_t { kDlInt = 0, kDlUint = 1, kDlFloat = 2, kDlBfloat = 4 };
constexpr uint64_t kAlignment = 64;

std::atomic<bool> g_shut_down{false};

struct CopyTensor {
  hr_dl_managed_tensor managed;
  int64_t shape[4], strides[4];
};

hr_dl_type ToDlType(uint32_t dtype) {
  const uint8_t bits = static_cast<uint8_t>(8 * ElementBytes(dtype));
  switch (dtype) {
    case HR_INT64:
      return {kDlInt, bits, 1};
    case HR_BFLOAT16:
      return {kDlBfloat, bits, 1};
    case HR_UINT8:
    case HR_TEXT:
      return {kDlUint, bits, 1};
    default:
      return {kDlFloat, bits, 1};
  }
}

template <class Tensor>
void Describe(const hr_field_layout& field, uint32_t length, void* data, Tensor* out) {
  const bool text = field.dtype == HR_TEXT;
  memcpy(out->shape, field.shape, sizeof out->shape);
  memcpy(out->strides, field.strides, sizeof out->strides);
  out->shape[0] = text ? static_cast<int64_t>(field.bytes) : static_cast<int64_t>(length);
  if (text) out->strides[0] = 1;
  hr_dl_tensor& tensor = out->managed.dl_tensor;
  tensor.data = data;
  tensor.device = {kDlCpu, 0};
  tensor.ndim = static_cast<int32_t>(field.ndim);
  tensor.dtype = ToDlType(field.dtype);
  tensor.shape = out->shape;
  tensor.strides = out->strides;
  tensor.byte_offset = 0;
  out->managed.manager_ctx = out;
}

void DeleteView(hr_dl_managed_tensor* managed) {
  auto* view = static_cast<ViewTensor*>(managed->manager_ctx);
  if (g_shut_down.load(std::memory_order_relaxed) || !IsCurrentProcess(view->process)) return;
  // Release: what this thread did with the slot is over before the daemon may fill it. The ring may
  // be gone right after.
  view->living->fetch_sub(1, std::memory_order_acq_rel);
}

void DeleteCopy(hr_dl_managed_tensor* managed) { free(managed->manager_ctx); }

}  // namespace

void MakeView(const hr_field_layout& field, uint32_t length, uint8_t* data, uint64_t process,
              std::atomic<uint32_t>* living, ViewTensor* out) {
  Describe(field, length, data, out);
  out->managed.deleter = DeleteView;
  out->process = process;
  out->living = living;
}

hr_dl_managed_tensor* MakeCopy(const hr_field_layout& field, uint32_t length, const uint8_t* data) {
  const uint64_t bytes = SpanBytes(field, length);
  // malloc, not aligned_alloc: small blocks then come from the thread's cache.
  auto* copy = static_cast<CopyTensor*>(malloc(sizeof(CopyTensor) + kAlignment + bytes));
  if (copy == nullptr) return nullptr;
  const uint64_t behind = reinterpret_cast<uint64_t>(copy + 1);
  auto* to = reinterpret_cast<uint8_t*>((behind + kAlignment - 1) / kAlignment * kAlignment);
  if (bytes > 0) memcpy(to, data, bytes);
  Describe(field, length, to, copy);
  copy->managed.deleter = DeleteCopy;
  return &copy->managed;
}

void ShutDown() { g_shut_down.store(true, std::memory_order_relaxed); }

}  // namespace headrace::client
