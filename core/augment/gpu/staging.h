// Bytes on their way to a GPU, one piece behind the other. Internal to core/augment/gpu.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory_resource>

namespace headrace::gpu {

// Unlike a vector's, its new bytes are not written before they are filled.
class Staging {
 public:
  explicit Staging(std::pmr::memory_resource* memory) : memory_(memory) {}
  ~Staging() { Free(); }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  const uint8_t* data() const { return data_; }
  uint64_t size() const { return size_; }
  // Room for `bytes` behind what there is; what was there may move.
  uint8_t* Grow(uint64_t bytes) {
    const uint64_t size = size_ + bytes;
    if (size > capacity_) {
      const uint64_t capacity = std::max(2 * capacity_, size);
      auto* data = static_cast<uint8_t*>(memory_->allocate(capacity, kAlignment));
      if (size_ > 0) std::memcpy(data, data_, size_);
      Free();
      data_ = data;
      capacity_ = capacity;
    }
    size_ = size;
    return data_ + (size - bytes);
  }
  void Shrink(uint64_t size) { size_ = size; }

 private:
  static constexpr size_t kAlignment = 256;
  void Free() {
    if (data_ != nullptr) memory_->deallocate(data_, capacity_, kAlignment);
  }

  std::pmr::memory_resource* const memory_;
  uint8_t* data_ = nullptr;
  uint64_t size_ = 0, capacity_ = 0;
};

}  // namespace headrace::gpu
