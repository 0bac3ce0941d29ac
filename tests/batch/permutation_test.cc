#include "core/batch/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <vector>

namespace headrace {
namespace {

std::vector<uint64_t> Values(uint64_t size, uint64_t seed, uint32_t epoch, uint32_t stream = 0) {
  const Permutation permutation(size, seed, epoch, stream);
  std::vector<uint64_t> values(size);
  for (uint64_t i = 0; i < size; ++i) values[i] = permutation(i);
  return values;
}

// Standard deviations by which a chi-square statistic of `cells` equal cells lies above its mean.
double ChiSquareZ(const std::vector<uint64_t>& counts) {
  const double total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), uint64_t{0}));
  const double expected = total / static_cast<double>(counts.size());
  double chi = 0;
  for (uint64_t count : counts) chi += std::pow(static_cast<double>(count) - expected, 2) / expected;
  const double freedom = static_cast<double>(counts.size()) - 1;
  return (chi - freedom) / std::sqrt(2 * freedom);
}

TEST(Permutation, HitsEveryValueOnce) {
  std::vector<uint64_t> sizes;
  for (uint64_t size = 1; size <= 300; ++size) sizes.push_back(size);
  for (int bits = 9; bits <= 16; ++bits) {
    for (uint64_t delta : {-1, 0, 1}) sizes.push_back((uint64_t{1} << bits) + delta);
  }
  for (uint64_t prime : {997, 4099, 7919, 50021}) sizes.push_back(prime);
  for (uint64_t size : sizes) {
    std::vector<bool> seen(size);
    for (uint64_t value : Values(size, 7, 3)) {
      ASSERT_LT(value, size);
      ASSERT_FALSE(seen[value]) << size;
      seen[value] = true;
    }
  }
}

TEST(Permutation, StaysInRangeForHugeSizes) {
  for (uint64_t size : {(uint64_t{1} << 32) + 1, (uint64_t{1} << 62) + 1, uint64_t{1} << 63}) {
    const Permutation permutation(size, 1, 0, 0);
    std::map<uint64_t, int> seen;
    for (uint64_t i = 0; i < 100; ++i) {
      EXPECT_LT(permutation(i), size);
      EXPECT_LT(permutation(size - 1 - i), size);
      EXPECT_EQ(++seen[permutation(i)], 1);
    }
  }
}

TEST(Permutation, DependsOnSeedEpochAndStream) {
  const auto base = Values(1000, 1, 1, 1);
  EXPECT_EQ(base, Values(1000, 1, 1, 1));
  EXPECT_NE(base, Values(1000, 2, 1, 1));
  EXPECT_NE(base, Values(1000, uint64_t{1} << 32 | 1, 1, 1));
  EXPECT_NE(base, Values(1000, 1, 2, 1));
  EXPECT_NE(base, Values(1000, 1, 1, 2));
}

// All permutations of a small set are equally frequent over the seeds: the hardest test for a Feistel network.
TEST(Permutation, SmallSetsTakeEveryOrderEquallyOften) {
  for (uint64_t size : {2, 3, 4, 5}) {
    std::map<std::vector<uint64_t>, uint64_t> orders;
    std::vector<uint64_t> order(size);
    std::iota(order.begin(), order.end(), 0);
    do orders[order] = 0;
    while (std::next_permutation(order.begin(), order.end()));
    for (uint64_t seed = 0; seed < 400 * orders.size(); ++seed) ++orders.at(Values(size, seed, 5));
    std::vector<uint64_t> counts;
    for (const auto& [values, count] : orders) counts.push_back(count);
    EXPECT_LT(std::abs(ChiSquareZ(counts)), 5) << size;
  }
}

TEST(Permutation, EveryPlaceTakesEveryValueEquallyOften) {
  for (uint64_t size : {10, 17, 64}) {
    std::vector<uint64_t> counts(size * size);
    for (uint64_t seed = 0; seed < 5000; ++seed) {
      const auto values = Values(size, seed, 0);
      for (uint64_t place = 0; place < size; ++place) ++counts[place * size + values[place]];
    }
    // Rows and columns are fixed sums, so the statistic has (size−1)² degrees of freedom; ChiSquareZ's mean is a little high.
    EXPECT_LT(ChiSquareZ(counts), 5) << size;
  }
}

// Neighbours in the order are far from being neighbours on the disk.
TEST(Permutation, NeighboursHaveEvenlySpreadDistances) {
  constexpr uint64_t kSize = 100003;
  std::vector<uint64_t> counts(64);
  const auto values = Values(kSize, 11, 2);
  for (uint64_t i = 1; i < kSize; ++i) ++counts[(values[i] + kSize - values[i - 1]) % kSize * counts.size() / kSize];
  EXPECT_LT(ChiSquareZ(counts), 5);
}

TEST(Permutation, TwoEpochsAgreeAsOftenAsChance) {
  constexpr uint64_t kSize = 65536;
  uint64_t equal = 0;
  for (uint32_t epoch = 0; epoch < 8; ++epoch) {
    const auto a = Values(kSize, 3, epoch), b = Values(kSize, 3, epoch + 1);
    for (uint64_t i = 0; i < kSize; ++i) equal += a[i] == b[i];
  }
  // A fixed point per pair is expected; 8 ± 2.8.
  EXPECT_LT(equal, 25u);
}

}  // namespace
}  // namespace headrace
