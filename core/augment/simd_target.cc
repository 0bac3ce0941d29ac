#include "core/augment/simd_target.h"

#include <hwy/highway.h>
#include <hwy/targets.h>

#include "core/augment/resize_kernels.h"

namespace headrace {
namespace {

constexpr int64_t kPortableTargets = HWY_SCALAR | HWY_EMU128;

// Targets above `isa`. A lower bit is a better target of the same architecture
// (hwy/detect_targets.h).
int64_t TargetsAbove(Isa isa) {
#if HWY_ARCH_X86
  const auto below = [](int64_t target) { return target - 1; };
  switch (isa) {
    case Isa::kAvx512:
      return below(HWY_AVX3);
    case Isa::kAvx2:
      return below(HWY_AVX2);
    case Isa::kSse4:
      return below(HWY_SSE4);
    default:
      break;
  }
#endif
  return isa == Isa::kPortable ? ~kPortableTargets : 0;
}

}  // namespace

void LimitIsa(Isa isa) {
  hwy::DisableTargets(TargetsAbove(isa));
  hwy::GetChosenTarget().DeInit();
}

std::string SimdTarget() { return ActiveResizeKernels().target; }

}  // namespace headrace
