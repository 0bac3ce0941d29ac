// Saturating narrowing part by part, per SIMD target; Highway 1.0 has no such operation for bytes.
#if defined(HEADRACE_PACK_PARTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADRACE_PACK_PARTS_INL_H_
#undef HEADRACE_PACK_PARTS_INL_H_
#else
#define HEADRACE_PACK_PARTS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace headrace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// In each 128-bit part of the result a's lanes, then b's.
#if HWY_ARCH_X86
HWY_INLINE hn::Vec128<int16_t> PackParts(hn::Vec128<int32_t> a, hn::Vec128<int32_t> b) {
  return hn::Vec128<int16_t>{_mm_packs_epi32(a.raw, b.raw)};
}
HWY_INLINE hn::Vec128<int8_t> PackParts(hn::Vec128<int16_t> a, hn::Vec128<int16_t> b) {
  return hn::Vec128<int8_t>{_mm_packs_epi16(a.raw, b.raw)};
}
HWY_INLINE hn::Vec128<uint8_t> PackUnsignedParts(hn::Vec128<int16_t> a, hn::Vec128<int16_t> b) {
  return hn::Vec128<uint8_t>{_mm_packus_epi16(a.raw, b.raw)};
}
#if HWY_TARGET <= HWY_AVX2
HWY_INLINE hn::Vec256<int16_t> PackParts(hn::Vec256<int32_t> a, hn::Vec256<int32_t> b) {
  return hn::Vec256<int16_t>{_mm256_packs_epi32(a.raw, b.raw)};
}
HWY_INLINE hn::Vec256<int8_t> PackParts(hn::Vec256<int16_t> a, hn::Vec256<int16_t> b) {
  return hn::Vec256<int8_t>{_mm256_packs_epi16(a.raw, b.raw)};
}
HWY_INLINE hn::Vec256<uint8_t> PackUnsignedParts(hn::Vec256<int16_t> a, hn::Vec256<int16_t> b) {
  return hn::Vec256<uint8_t>{_mm256_packus_epi16(a.raw, b.raw)};
}
#endif
#if HWY_TARGET <= HWY_AVX3
HWY_INLINE hn::Vec512<int16_t> PackParts(hn::Vec512<int32_t> a, hn::Vec512<int32_t> b) {
  return hn::Vec512<int16_t>{_mm512_packs_epi32(a.raw, b.raw)};
}
HWY_INLINE hn::Vec512<int8_t> PackParts(hn::Vec512<int16_t> a, hn::Vec512<int16_t> b) {
  return hn::Vec512<int8_t>{_mm512_packs_epi16(a.raw, b.raw)};
}
HWY_INLINE hn::Vec512<uint8_t> PackUnsignedParts(hn::Vec512<int16_t> a, hn::Vec512<int16_t> b) {
  return hn::Vec512<uint8_t>{_mm512_packus_epi16(a.raw, b.raw)};
}
#endif
#else  // vectors of one part
template <class D, class V>
HWY_INLINE hn::Vec<D> Pack(D d, V a, V b) {
  const hn::Half<D> half;
  return hn::Combine(d, hn::DemoteTo(half, b), hn::DemoteTo(half, a));
}
template <class V>
HWY_INLINE auto PackParts(V a, V b) {
  return Pack(hn::Repartition<hwy::MakeNarrow<hn::TFromV<V>>, hn::DFromV<V>>(), a, b);
}
template <class V>
HWY_INLINE auto PackUnsignedParts(V a, V b) {
  return Pack(hn::Repartition<uint8_t, hn::DFromV<V>>(), a, b);
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace headrace
HWY_AFTER_NAMESPACE();

#endif  // include guard
