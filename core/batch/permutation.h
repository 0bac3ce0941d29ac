// A keyed permutation of 0 … size−1 in O(1) memory (docs/order.md). Format-preserving encryption in the manner of Black and
// Rogaway, "Ciphers with Arbitrary Finite Domains" (CT-RSA 2002): a balanced Feistel network, and cycle walking.
#pragma once

#include <cstdint>

#include "core/base/philox.h"

namespace headrace {

// A value type of a few words. Different (seed, epoch, stream) give independent permutations.
class Permutation {
 public:
  // size ≤ 2^63; stream < 2^28.
  Permutation(uint64_t size, uint64_t seed, uint32_t epoch, uint32_t stream);

  uint64_t size() const { return size_; }
  // x < size. 0.25 µs times the number of walks (1 to 4 on average: 4^h / size with h of docs/order.md).
  uint64_t operator()(uint64_t x) const;

 private:
  uint64_t size_, seed_;
  uint32_t epoch_, stream_;
  int half_bits_;
  bool swap_;
};

// One word block of the order's randomness: Philox with RandomUse::kPermutation and position = value | (16·stream + round) << 32.
std::array<uint32_t, 4> PermutationWords(uint64_t seed, uint32_t epoch, uint32_t stream, uint32_t round, uint32_t value);

}  // namespace headrace
