// Host memory that the GPU copies from without waiting. Internal to core/augment/gpu.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory_resource>
#include <new>

namespace headrace::gpu {

class PinnedMemory : public std::pmr::memory_resource {
  void* do_allocate(size_t bytes, size_t) override {  // aligned to pages
    void* memory = nullptr;
    if (cudaMallocHost(&memory, bytes) != cudaSuccess) throw std::bad_alloc();
    return memory;
  }
  void do_deallocate(void* memory, size_t, size_t) override { cudaFreeHost(memory); }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

}  // namespace headrace::gpu
