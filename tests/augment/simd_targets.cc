#include "tests/augment/simd_targets.h"

#include <hwy/targets.h>

#include "core/augment/simd_target.h"

namespace headrace {

void OnEveryTarget(const std::function<void(const std::string& target)>& check) {
  // With none of them left, the library falls back to its code without SIMD.
  const int64_t supported = hwy::SupportedTargets();
  for (int64_t rest = supported; rest != 0; rest &= rest - 1) {
    hwy::SetSupportedTargetsForTest(rest & -rest);
    hwy::GetChosenTarget().DeInit();
    check(SimdTarget());
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

}  // namespace headrace
