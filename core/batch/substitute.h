// Which sample stands in for one that cannot be decoded (on_bad_sample="substitute").
#pragma once

#include <cstdint>

#include "core/batch/permutation.h"

namespace headrace {

// The candidates for the bad sample at a position, in the order in which they are tried: a permutation of the dataset that
// depends on (seed, epoch, position) only (docs/order.md). The caller takes the first that has the bad sample's label, is
// another sample, and decodes.
class SubstituteOrder {
 public:
  SubstituteOrder(uint64_t dataset_size, uint64_t seed, uint64_t epoch, uint64_t position);

  // i < dataset_size.
  uint64_t Candidate(uint64_t i) const { return permutation_(i); }

 private:
  Permutation permutation_;
};

// How many candidates' labels are looked at before any label will do, and how many samples are decoded before the batch is a
// bad one; part of order_version. 65,536 rows cost about 0.1 s.
inline constexpr uint64_t kSubstituteLabelTries = 65536;
inline constexpr int kSubstituteDecodeTries = 16;

}  // namespace headrace
