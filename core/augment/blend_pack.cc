// The vertical pass of a resize and the packing of its result in one: pixels stay in registers.
#include "core/augment/pack.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/augment/blend_pack.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>

#include "core/augment/filter.h"
#if HWY_NATIVE_FMA && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#include "core/augment/elements-inl.h"
#include "core/augment/pair_sum-inl.h"
#endif

#ifndef HEADRACE_BLEND_PACK_JOB_
#define HEADRACE_BLEND_PACK_JOB_
namespace headrace {
namespace {

struct BlendPackJob {
  const PackPlan* plan;
  const BlendedRow* blended;
  size_t width;
  uint8_t* out;        // of the row
  size_t plane_bytes;  // between the output's planes; 0: channels_last
  bool streamed;       // past the caches
};

}  // namespace
}  // namespace headrace
#endif  // HEADRACE_BLEND_PACK_JOB_

HWY_BEFORE_NAMESPACE();
namespace headrace {
namespace HWY_NAMESPACE {

#if !HWY_NATIVE_FMA || HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

bool BlendPack(const BlendPackJob&) { return false; }

#else

namespace hn = hwy::HWY_NAMESPACE;

// kTaps: how many rows, 0 where it is not a constant; a constant keeps the weights in registers.
template <int kTaps, bool kClamp>
class Blender {
 public:
  explicit HWY_INLINE Blender(const BlendedRow& blended)
      : rows_(blended.rows),
        weights_(blended.weights),
        taps_(blended.taps),
        bias_(hn::Set(D32(), blended.bias)) {
    for (int t = 0; t < kTaps; ++t) {
      row_[t] = rows_[t];
      weight_[t] = Weight(t);
    }
  }

  // Pixels from lane `at` on.
  HWY_INLINE V32 Pixels(size_t at) const {
    PairSum sum(bias_);
    const auto load = [at](const int32_t* row)
                          HWY_ATTR { return hn::BitCast(D16(), hn::LoadU(D32(), row + at)); };
    // Written out, because gcc does not unroll such loops at -O2.
    if constexpr (kTaps > 0) sum.Add(load(row_[0]), weight_[0]);
    if constexpr (kTaps > 1) sum.Add(load(row_[1]), weight_[1]);
    if constexpr (kTaps > 2) sum.Add(load(row_[2]), weight_[2]);
    if constexpr (kTaps > 3) sum.Add(load(row_[3]), weight_[3]);
    for (int t = 0; kTaps == 0 && t < taps_; ++t) sum.Add(load(rows_[t]), Weight(t));
    V32 pixels = hn::ShiftRight<kWeightBits>(sum.Get());
    if constexpr (kClamp) pixels = hn::Min(hn::Max(pixels, hn::Zero(D32())), hn::Set(D32(), 255));
    return pixels;
  }

 private:
  HWY_INLINE V16 Weight(int t) const { return hn::BitCast(D16(), hn::Set(D32(), weights_[t])); }

  const int32_t* const* const rows_;
  const int32_t* const weights_;
  const int taps_;
  const V32 bias_;
  const int32_t* row_[kTaps > 0 ? kTaps : 1];
  V16 weight_[kTaps > 0 ? kTaps : 1];
};

template <class As, bool kNormalized, int kTaps, bool kClamp>
HWY_NOINLINE void Planes(const BlendPackJob& job) {
  const typename As::D d;
  const Blender<kTaps, kClamp> blender(*job.blended);
  const size_t width = job.width;
  for (size_t c = 0; c < 3; ++c) {
    const VF a = hn::Set(DF(), kNormalized ? job.plan->a[c] : kHigh255);
    const VF b = hn::Set(DF(), kNormalized ? job.plan->b[c] : kLow255);
    const size_t from = c * job.blended->plane_lanes;
    auto* HWY_RESTRICT out = reinterpret_cast<typename As::T*>(job.out + c * job.plane_bytes);
    const auto elements = [&](size_t x) HWY_ATTR {
      return Element<As, kNormalized>(blender.Pixels(from + x), a, b);
    };
    size_t x = 0;
    if (job.streamed && reinterpret_cast<uintptr_t>(out) % (kLanes * sizeof(*out)) == 0) {
      for (; x + kLanes <= width; x += kLanes) hn::Stream(elements(x), d, out + x);
    } else {
      for (; x + kLanes <= width; x += kLanes) hn::StoreU(elements(x), d, out + x);
    }
    if (x < width)
      hn::StoreU(elements(width - kLanes), d, out + width - kLanes);  // overlaps the one before
  }
}

template <class As, bool kNormalized, int kTaps, bool kClamp>
HWY_NOINLINE void Interleaved(const BlendPackJob& job) {
  const Blender<kTaps, kClamp> blender(*job.blended);
  auto* HWY_RESTRICT out = reinterpret_cast<typename As::T*>(job.out);
  VF a[3], b[3];
  for (size_t c = 0; c < 3; ++c) {
    a[c] = hn::Set(DF(), kNormalized ? job.plan->a[c] : kHigh255);
    b[c] = hn::Set(DF(), kNormalized ? job.plan->b[c] : kLow255);
  }
  const auto elements = [&](size_t c, size_t x) HWY_ATTR {
    return Element<As, kNormalized>(blender.Pixels(c * job.blended->plane_lanes + x), a[c], b[c]);
  };
  for (size_t x = 0; x < job.width; x += kLanes) {
    const size_t at = x + kLanes <= job.width ? x : job.width - kLanes;
    hn::StoreInterleaved3(elements(0, at), elements(1, at), elements(2, at), typename As::D(),
                          out + 3 * at);
  }
}

template <class As, bool kNormalized, int kTaps, bool kClamp>
HWY_INLINE void BlendRow(const BlendPackJob& job) {
  job.plane_bytes != 0 ? Planes<As, kNormalized, kTaps, kClamp>(job)
                       : Interleaved<As, kNormalized, kTaps, kClamp>(job);
}

template <class As, bool kNormalized>
HWY_INLINE void BlendRow(const BlendPackJob& job) {
  if (job.blended->overshoots) return BlendRow<As, kNormalized, 0, true>(job);
  switch (job.blended->taps) {
    case 2:
      return BlendRow<As, kNormalized, 2, false>(job);
    case 3:
      return BlendRow<As, kNormalized, 3, false>(job);
    case 4:
      return BlendRow<As, kNormalized, 4, false>(job);
    default:
      return BlendRow<As, kNormalized, 0, false>(job);
  }
}

template <class As>
HWY_INLINE void BlendRow(const BlendPackJob& job) {
  job.plan->normalized ? BlendRow<As, true>(job) : BlendRow<As, false>(job);
}

bool BlendPack(const BlendPackJob& job) {
  if (job.width < kLanes) return false;
  if (job.plan->dtype == DType::kFloat32) BlendRow<AsFloat32>(job);
  if (job.plan->dtype == DType::kFloat16) BlendRow<AsFloat16>(job);
  if (job.plan->dtype == DType::kBFloat16) BlendRow<AsBFloat16>(job);
  return true;
}

#endif  // fused multiply-add

}  // namespace HWY_NAMESPACE
}  // namespace headrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headrace {
namespace {

HWY_EXPORT(BlendPack);

}  // namespace

bool PackBlendedRow(const PackPlan& plan, const BlendedRow& blended, int row, int height, int width,
                    void* out) {
  if (plan.dtype == DType::kUInt8) return false;
  const OutputRow place = PlaceOfRow(plan, row, height, width, out);
  return HWY_DYNAMIC_DISPATCH(BlendPack)({&plan, &blended, static_cast<size_t>(width), place.bytes,
                                          place.plane_bytes, place.streamed});
}

}  // namespace headrace
#endif  // HWY_ONCE
