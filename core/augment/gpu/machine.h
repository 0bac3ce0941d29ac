// What a GPU has an instruction for, and what does the same on the host. Internal to core/augment/gpu.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/base/host_device.h"

namespace headrace::gpu {

// The upper half of high:low shifted to the left by less than 32.
HEADRACE_GPU inline uint32_t ShiftPair(uint32_t high, uint32_t low, uint32_t shift) {
#ifdef __CUDA_ARCH__
  return __funnelshift_l(low, high, shift);
#else
  return static_cast<uint32_t>((uint64_t{high} << 32 | low) << shift >> 32);
#endif
}

// Byte i is byte `which >> 4i & 7` of the pair: 0 … 3 of `low`, 4 … 7 of `high`.
HEADRACE_GPU inline uint32_t PickBytes(uint32_t low, uint32_t high, uint32_t which) {
#ifdef __CUDA_ARCH__
  return __byte_perm(low, high, which);
#else
  const uint64_t pair = uint64_t{high} << 32 | low;
  uint32_t bytes = 0;
  for (uint32_t i = 0; i < 4; ++i) bytes |= static_cast<uint32_t>(pair >> (8 * (which >> 4 * i & 7)) & 0xFF) << 8 * i;
  return bytes;
#endif
}

// Of memory that no thread of the kernel writes.
template <class T>
HEADRACE_GPU T Load(const T* from) {
#ifdef __CUDA_ARCH__
  return __ldg(from);
#else
  return *from;
#endif
}
// Words at an aligned address.
HEADRACE_GPU inline void LoadFour(const void* from, uint32_t* words) {
#ifdef __CUDA_ARCH__
  const uint4 four = *reinterpret_cast<const uint4*>(from);
  words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
#else
  std::memcpy(words, from, 16);
#endif
}
HEADRACE_GPU inline void LoadTwo(const void* from, uint32_t* words) {
#ifdef __CUDA_ARCH__
  const uint2 two = *reinterpret_cast<const uint2*>(from);
  words[0] = two.x, words[1] = two.y;
#else
  std::memcpy(words, from, 8);
#endif
}

// To an aligned address.
HEADRACE_GPU inline void StoreTwo(const uint32_t* words, uint8_t* to) {
#ifdef __CUDA_ARCH__
  *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
#else
  std::memcpy(to, words, 8);
#endif
}
HEADRACE_GPU inline void StoreBytes(uint8_t a, uint8_t b, uint8_t c, uint8_t d, uint8_t* to) {
#ifdef __CUDA_ARCH__
  *reinterpret_cast<uchar4*>(to) = make_uchar4(a, b, c, d);
#else
  to[0] = a, to[1] = b, to[2] = c, to[3] = d;
#endif
}

}  // namespace headrace::gpu
