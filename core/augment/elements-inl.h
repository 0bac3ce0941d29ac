// From pixels to elements, per SIMD target with a fused multiply-add. Internal to core/augment.
#if defined(HEADRACE_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADRACE_ELEMENTS_INL_H_
#undef HEADRACE_ELEMENTS_INL_H_
#else
#define HEADRACE_ELEMENTS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace headrace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;
using DE8 = hn::Rebind<uint8_t, DF>;
using DE16 = hn::Rebind<uint16_t, DF>;
using VE16 = hn::Vec<DE16>;
using DE32 = hn::RebindToSigned<DF>;

struct AsFloat32 {
  using D = DF;
  using T = float;
  static HWY_INLINE VF Cast(VF v) { return v; }
};
struct AsFloat16 {
  using D = DE16;
  using T = uint16_t;
  static HWY_INLINE VE16 Cast(VF v) {
    return hn::BitCast(DE16(), hn::DemoteTo(hn::Rebind<hwy::float16_t, DF>(), v));
  }
};
struct AsBFloat16 {
  using D = DE16;
  using T = uint16_t;
  static HWY_INLINE VE16 Cast(VF v) {  // Highway's own conversion truncates
    const hn::RebindToUnsigned<DF> d;
    const auto bits = hn::BitCast(d, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7fff))));
    return hn::DemoteTo(DE16(), hn::BitCast(DE32(), rounded));
  }
};

// pixel / 255, correctly rounded, without a division: 1 / 255 as the sum of two floats. Checked for
// all 256 pixels.
constexpr float kHigh255 = 0x1.010102p-8f;
constexpr float kLow255 = -0x1.fdfdfep-33f;

// a and b: of Normalize, else kHigh255 and kLow255.
template <class As, bool kNormalized>
HWY_INLINE hn::Vec<typename As::D> Element(hn::Vec<DE32> pixels, VF a, VF b) {
  const VF pixel = hn::ConvertTo(DF(), pixels);
  if constexpr (kNormalized) return As::Cast(hn::MulAdd(pixel, a, b));
  return As::Cast(hn::MulAdd(pixel, a, hn::Mul(pixel, b)));
}

}  // namespace HWY_NAMESPACE
}  // namespace headrace
HWY_AFTER_NAMESPACE();

#endif  // include guard
