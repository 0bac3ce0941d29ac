// Sums of products of 16-bit pairs, per SIMD target. Internal to core/augment.
#if defined(HEADRACE_PAIR_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADRACE_PAIR_SUM_INL_H_
#undef HEADRACE_PAIR_SUM_INL_H_
#else
#define HEADRACE_PAIR_SUM_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "core/base/vnni.h"

HWY_BEFORE_NAMESPACE();
namespace headrace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most 512 bits, so that a plane is a whole number of vectors; scalable targets are not compiled
// (CMakeLists.txt).
using D32 = hn::CappedTag<int32_t, 16>;
using D16 = hn::Repartition<int16_t, D32>;
using V32 = hn::Vec<D32>;
using V16 = hn::Vec<D16>;
constexpr size_t kLanes = hn::MaxLanes(D32());

// initial + Σ over pairs a[2i]·b[2i] + a[2i+1]·b[2i+1]. On x86 one instruction and an addition
// each, with VNNI one alone; on other targets Highway keeps two halves that are joined at the end.
struct PairSum {
  HWY_INLINE explicit PairSum(V32 first) {
#if HWY_ARCH_X86
    sum0 = first;
    sum1 = hn::Zero(D32());
#else
    initial = first;
    sum0 = sum1 = hn::Zero(D32());
#endif
  }
  HWY_INLINE void Add(V16 a, V16 b) {
#if HEADRACE_HAS_VNNI
    sum0 = V32{AddDotOfWords(sum0.raw, a.raw, b.raw)};
#else
    sum0 = hn::ReorderWidenMulAccumulate(D32(), a, b, sum0, sum1);
#endif
  }
  HWY_INLINE V32 Get() const {
    const V32 sum = hn::RearrangeToOddPlusEven(sum0, sum1);
#if HWY_ARCH_X86
    return sum;
#else
    return hn::Add(initial, sum);
#endif
  }
  V32 sum0, sum1;
#if !HWY_ARCH_X86
  V32 initial;
#endif
};

}  // namespace HWY_NAMESPACE
}  // namespace headrace
HWY_AFTER_NAMESPACE();

#endif  // include guard
