// Host memory that the GPU copies from without waiting. Internal to core/augment/gpu.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <new>
#include <vector>

namespace headrace::gpu {

template <class T>
struct PinnedAllocator {
  using value_type = T;
  PinnedAllocator() = default;
  template <class U>
  PinnedAllocator(const PinnedAllocator<U>&) {}  // NOLINT: as allocators are
  T* allocate(size_t n) {
    void* memory = nullptr;
    if (cudaMallocHost(&memory, n * sizeof(T)) != cudaSuccess) throw std::bad_alloc();
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t) { cudaFreeHost(memory); }
  friend bool operator==(const PinnedAllocator&, const PinnedAllocator&) { return true; }
};

// Keeps its memory when it is cleared, so that batches allocate nothing in the steady state.
template <class T>
using PinnedVector = std::vector<T, PinnedAllocator<T>>;

}  // namespace headrace::gpu
