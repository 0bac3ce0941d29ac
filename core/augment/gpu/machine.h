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

// `sum` and the products of the words' bytes; those of `factors` are signed or not.
HEADRACE_GPU inline uint32_t DotBytes(uint32_t bytes, uint32_t factors, uint32_t sum) {
#ifdef __CUDA_ARCH__
  return __dp4a(bytes, factors, sum);
#else
  for (uint32_t i = 0; i < 32; i += 8) sum += (bytes >> i & 0xFF) * (factors >> i & 0xFF);
  return sum;
#endif
}
HEADRACE_GPU inline uint32_t DotSignedBytes(uint32_t bytes, uint32_t factors, uint32_t sum) {
#ifdef __CUDA_ARCH__
  asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(bytes), "r"(factors));
  return sum;
#else
  for (uint32_t i = 0; i < 32; i += 8) sum += (bytes >> i & 0xFF) * static_cast<uint32_t>(static_cast<int8_t>(factors >> i & 0xFF));
  return sum;
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
// A word, and words, at an aligned address.
HEADRACE_GPU inline uint32_t LoadOne(const void* from) {
#ifdef __CUDA_ARCH__
  return *static_cast<const uint32_t*>(from);
#else
  uint32_t word;
  std::memcpy(&word, from, 4);
  return word;
#endif
}
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
HEADRACE_GPU inline void StoreOne(uint32_t word, void* to) {
#ifdef __CUDA_ARCH__
  *static_cast<uint32_t*>(to) = word;
#else
  std::memcpy(to, &word, 4);
#endif
}
HEADRACE_GPU inline void StoreTwo(const uint32_t* words, void* to) {
#ifdef __CUDA_ARCH__
  *static_cast<uint2*>(to) = make_uint2(words[0], words[1]);
#else
  std::memcpy(to, words, 8);
#endif
}
HEADRACE_GPU inline void StoreFour(const uint32_t* words, void* to) {
#ifdef __CUDA_ARCH__
  *static_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
#else
  std::memcpy(to, words, 16);
#endif
}

}  // namespace headrace::gpu
