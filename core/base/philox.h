// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011).
#pragma once

#include <array>
#include <cstdint>

namespace headrace {

// What a random choice is for; part of the counter, so that choices never share numbers. Values are part of order_version.
enum class RandomUse : uint32_t {
  kPermutation = 0,         // round keys of the global order (core/batch/permutation.h)
  kSubstitute = 1,          // another sample for a bad one
  kTransformBase = 0x1000,  // transform i of a recipe uses kTransformBase + 16·i + draw (draw: 0 … 15)
};

// 128 random bits: a pure function of its arguments. key = (seed low, seed high),
// counter = (position low, position high, epoch, use).
std::array<uint32_t, 4> Philox(uint64_t seed, uint32_t epoch, uint64_t position, uint32_t use);

// The bare function of the paper, for golden vectors.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// 53 random bits as a double in [0, 1): (hi << 32 | lo) >> 11, scaled by 2^-53.
inline double UnitDouble(uint32_t lo, uint32_t hi) {
  return static_cast<double>((static_cast<uint64_t>(hi) << 32 | lo) >> 11) * 0x1.0p-53;
}

}  // namespace headrace
