// An entry point's 8 bytes (docs/shard_format.md, "Entry data"): for the CPU and the GPU.
#pragma once

#include <cstdint>

#include "core/base/host_device.h"

namespace headrace {

inline constexpr int kEntryByteBits = 25, kEntryDcBits = 12;

// From the row's first byte.
HEADRACE_GPU constexpr uint32_t EntryByte(uint64_t word) { return static_cast<uint32_t>(word >> 3) & ((1u << kEntryByteBits) - 1); }
// 0 … 7, from the byte's most significant bit.
HEADRACE_GPU constexpr uint8_t EntryBit(uint64_t word) { return word & 7; }
// A DC prediction; a fourth component's is all of the second word that its images' entries have.
HEADRACE_GPU constexpr int16_t SignedDc(uint64_t bits) {
  const int value = static_cast<int>(bits & ((1u << kEntryDcBits) - 1));
  return static_cast<int16_t>(value >= 1 << (kEntryDcBits - 1) ? value - (1 << kEntryDcBits) : value);
}
// Of component 0 … 2.
HEADRACE_GPU constexpr int16_t EntryDc(uint64_t word, int c) { return SignedDc(word >> (3 + kEntryByteBits + kEntryDcBits * c)); }

}  // namespace headrace
