#include "core/batch/substitute.h"

namespace headrace {
namespace {

uint64_t SubstituteKey(uint64_t seed, uint64_t epoch, uint64_t position) {
  const auto words =
      Philox(seed, static_cast<uint32_t>(epoch), position, static_cast<uint32_t>(RandomUse::kSubstitute));
  return static_cast<uint64_t>(words[1]) << 32 | words[0];
}

}  // namespace

SubstituteOrder::SubstituteOrder(uint64_t dataset_size, uint64_t seed, uint64_t epoch, uint64_t position)
    : permutation_(dataset_size, SubstituteKey(seed, epoch, position), 0, 0) {}

}  // namespace headrace
