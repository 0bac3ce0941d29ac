#include "core/decode/segment/kernels.h"

#include "core/decode/segment/entropy_x86.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/decode/segment/kernels.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>

#include "core/decode/segment/entropy-inl.h"
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
#include "core/decode/segment/portable_kernels.h"
#else
#include "core/decode/segment/idct-inl.h"
#include "core/decode/segment/sample_rows-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace headrace {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
using namespace portable;  // NOLINT: the same kernels without SIMD
#endif

const SegmentKernels* GetSegmentKernels() {
  static const SegmentKernels kKernels = {
      hwy::TargetName(HWY_TARGET), Unstuff,      DecodeTurns, Idct,      UpsampleH2V1,
      UpsampleH2V2,                UpsampleH1V2, YccToRgb,    Interleave};
  return &kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace headrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headrace {

HWY_EXPORT(GetSegmentKernels);

const SegmentKernels& ActiveSegmentKernels() { return *HWY_DYNAMIC_DISPATCH(GetSegmentKernels)(); }

}  // namespace headrace
#endif  // HWY_ONCE
