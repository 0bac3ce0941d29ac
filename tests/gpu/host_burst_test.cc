// The GPU engine's plan and what its threads do, on the host: every bit as on the CPU engine, which is tested against libjpeg and
// Pillow. Needs neither GPU nor CUDA.
#include <algorithm>

#include "tests/gpu/batch_test.h"
#include "tests/gpu/host_maker.h"

namespace headrace {
namespace {

using testing::BatchTest;
using testing::HostMaker;

using HostBurst = BatchTest;

TEST_F(HostBurst, GivesTheCpusPixelsAndFloats) {
  HostMaker maker;
  GivesTheCpusPixelsAndFloats(&maker, std::max(48 / TEST_SLOWDOWN, 1), 0);
}

TEST_F(HostBurst, HostileEntryPointsGiveTheCpusPixelsOrAreLeftToIt) {
  HostMaker maker;
  HostileEntryPointsGiveTheCpusPixelsOrAreLeftToIt(&maker, std::max(16 / TEST_SLOWDOWN, 1));
}

TEST_F(HostBurst, DamagedDataGivesTheCpusPixelsOrIsLeftToIt) {
  HostMaker maker;
  DamagedDataGivesTheCpusPixelsOrIsLeftToIt(&maker, std::max(16 / TEST_SLOWDOWN, 1));
}

}  // namespace
}  // namespace headrace
