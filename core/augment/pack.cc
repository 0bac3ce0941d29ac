#include "core/augment/pack.h"

#include <bit>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/augment/pack.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>

#if HWY_NATIVE_FMA && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#include "core/augment/elements-inl.h"
#endif

// A row on its way out: `planes` in, channel c of pixel x at out[c · plane + x] or out[3 · x + c].
#ifndef HEADRACE_PACK_ROW_
#define HEADRACE_PACK_ROW_
namespace headrace {
namespace {

struct Row {
  const PackPlan* plan;
  const uint8_t* planes;
  size_t stride;  // of `planes`
  size_t width;
  uint8_t* out;        // of the row
  size_t plane_bytes;  // between the output's planes; 0: channels_last
  bool streamed;       // past the caches
};

using Table32 = std::array<std::array<float, 256>, 3>;
using Table16 = std::array<std::array<uint16_t, 256>, 3>;

// Pixels [begin, width) by the table.
template <typename T>
void PackByTable(const Row& row, const std::array<std::array<T, 256>, 3>& table, size_t begin) {
  for (size_t c = 0; c < 3; ++c) {
    const uint8_t* in = row.planes + c * row.stride;
    const std::array<T, 256>& values = table[c];
    if (row.plane_bytes != 0) {
      T* out = reinterpret_cast<T*>(row.out + c * row.plane_bytes);
      for (size_t x = begin; x < row.width; ++x) out[x] = values[in[x]];
    } else {
      T* out = reinterpret_cast<T*>(row.out);
      for (size_t x = begin; x < row.width; ++x) out[3 * x + c] = values[in[x]];
    }
  }
}

}  // namespace
}  // namespace headrace
#endif  // HEADRACE_PACK_ROW_

HWY_BEFORE_NAMESPACE();
namespace headrace {
namespace HWY_NAMESPACE {

#if !HWY_NATIVE_FMA || HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

void PackFloat32(const Row& row) { PackByTable(row, row.plan->float32, 0); }
void PackFloat16(const Row& row) { PackByTable(row, row.plan->float16, 0); }
void PackBFloat16(const Row& row) { PackByTable(row, row.plan->float16, 0); }

#else

namespace hn = hwy::HWY_NAMESPACE;

const Table32& TableOf(AsFloat32, const PackPlan& plan) { return plan.float32; }
const Table16& TableOf(AsFloat16, const PackPlan& plan) { return plan.float16; }
const Table16& TableOf(AsBFloat16, const PackPlan& plan) { return plan.float16; }

template <class As, bool kNormalized>
HWY_INLINE hn::Vec<typename As::D> Convert(const uint8_t* in, VF a, VF b) {
  return Element<As, kNormalized>(hn::PromoteTo(DE32(), hn::LoadU(DE8(), in)), a, b);
}

template <class As, bool kNormalized>
void PackPlanes(const Row& row) {
  const typename As::D d;
  const size_t lanes = hn::Lanes(d);
  for (size_t c = 0; c < 3; ++c) {
    const VF a = hn::Set(DF(), kNormalized ? row.plan->a[c] : kHigh255);
    const VF b = hn::Set(DF(), kNormalized ? row.plan->b[c] : kLow255);
    const uint8_t* HWY_RESTRICT in = row.planes + c * row.stride;
    auto* HWY_RESTRICT out = reinterpret_cast<typename As::T*>(row.out + c * row.plane_bytes);
    size_t x = 0;
    if (row.streamed && reinterpret_cast<uintptr_t>(out) % (lanes * sizeof(*out)) == 0) {
      for (; x + lanes <= row.width; x += lanes)
        hn::Stream(Convert<As, kNormalized>(in + x, a, b), d, out + x);
    } else {
      for (; x + lanes <= row.width; x += lanes)
        hn::StoreU(Convert<As, kNormalized>(in + x, a, b), d, out + x);
    }
    if (x < row.width) {  // the last vector overlaps the one before it
      x = row.width - lanes;
      hn::StoreU(Convert<As, kNormalized>(in + x, a, b), d, out + x);
    }
  }
}

template <class As, bool kNormalized>
void PackInterleaved(const Row& row) {
  const size_t lanes = hn::Lanes(DF());
  VF a[3], b[3];
  for (size_t c = 0; c < 3; ++c) {
    a[c] = hn::Set(DF(), kNormalized ? row.plan->a[c] : kHigh255);
    b[c] = hn::Set(DF(), kNormalized ? row.plan->b[c] : kLow255);
  }
  auto* HWY_RESTRICT out = reinterpret_cast<typename As::T*>(row.out);
  size_t x = 0;
  while (x < row.width) {
    if (x + lanes > row.width) x = row.width - lanes;
    const uint8_t* in = row.planes + x;
    hn::StoreInterleaved3(Convert<As, kNormalized>(in, a[0], b[0]),
                          Convert<As, kNormalized>(in + row.stride, a[1], b[1]),
                          Convert<As, kNormalized>(in + 2 * row.stride, a[2], b[2]),
                          typename As::D(), out + 3 * x);
    x += lanes;
  }
}

template <class As>
void Pack(const Row& row) {
  if (row.width < hn::Lanes(DF())) return PackByTable(row, TableOf(As(), *row.plan), 0);
  if (row.plane_bytes != 0) {
    row.plan->normalized ? PackPlanes<As, true>(row) : PackPlanes<As, false>(row);
  } else {
    row.plan->normalized ? PackInterleaved<As, true>(row) : PackInterleaved<As, false>(row);
  }
}

void PackFloat32(const Row& row) { Pack<AsFloat32>(row); }
void PackFloat16(const Row& row) { Pack<AsFloat16>(row); }
void PackBFloat16(const Row& row) { Pack<AsBFloat16>(row); }

#endif  // fused multiply-add

}  // namespace HWY_NAMESPACE
}  // namespace headrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <hwy/cache_control.h>

#include "core/augment/resize_kernels.h"

namespace headrace {
namespace {

HWY_EXPORT(PackFloat32);
HWY_EXPORT(PackFloat16);
HWY_EXPORT(PackBFloat16);

void PackUInt8(const Row& row) {
  if (row.plane_bytes == 0) {
    ActiveResizeKernels().merge_row(row.planes, row.stride, static_cast<int>(row.width), row.out);
    return;
  }
  for (size_t c = 0; c < 3; ++c)
    std::memcpy(row.out + c * row.plane_bytes, row.planes + c * row.stride, row.width);
}

// The coefficients of Normalize, in double.
double Scale(const Normalize& n, size_t c) { return 1.0 / (255.0 * n.std[c]); }
double Shift(const Normalize& n, size_t c) { return -n.mean[c] / n.std[c]; }

// A sample of this size leaves the caches before anybody reads it. Writing past them saves reading
// the lines first, and leaves the decoder's data where it is (97 → 85 µs for a float32 sample of
// 224 × 224 into a slot of 77 MB).
constexpr size_t kStreamedBytes = 128 << 10;

size_t ElementBytes(DType dtype) {
  return dtype == DType::kUInt8 ? 1 : dtype == DType::kFloat32 ? 4 : 2;
}

}  // namespace

uint16_t BFloat16Bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

uint16_t Float16Bits(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::abs(static_cast<double>(value));
  if (magnitude >= 65520.0) return sign | 0x7c00;  // half a step above the greatest
  // A step of the result, 2^-24 for subnormal ones. Scaling by it is exact, so nearbyint rounds
  // once, half to even.
  const int exponent = magnitude < 0x1p-14 ? -14 : std::ilogb(magnitude);
  const auto steps = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  // A carry out of the fraction goes into the exponent, as it must.
  return static_cast<uint16_t>(sign |
                               (magnitude < 0x1p-14 ? steps : ((exponent + 14) << 10) + steps));
}

PackPlan MakePackPlan(const Recipe& recipe) {
  PackPlan plan;
  plan.dtype = recipe.dtype;
  plan.memory_format = recipe.memory_format;
  plan.normalized = recipe.normalize.has_value();
  for (size_t c = 0; c < 3; ++c) {
    if (plan.normalized) {
      plan.a[c] = static_cast<float>(Scale(*recipe.normalize, c));
      plan.b[c] = static_cast<float>(Shift(*recipe.normalize, c));
    }
    for (size_t pixel = 0; pixel < 256; ++pixel) {
      const float p = static_cast<float>(pixel);
      const float value = plan.normalized ? std::fma(p, plan.a[c], plan.b[c]) : p / 255.0f;
      plan.float32[c][pixel] = value;
      plan.float16[c][pixel] =
          plan.dtype == DType::kBFloat16 ? BFloat16Bits(value) : Float16Bits(value);
    }
  }
  return plan;
}

bool IsPlanFor(const PackPlan& plan, const Recipe& recipe) {
  if (plan.dtype != recipe.dtype || plan.memory_format != recipe.memory_format) return false;
  if (plan.normalized != recipe.normalize.has_value()) return false;
  for (size_t c = 0; c < 3 && plan.normalized; ++c) {
    if (plan.a[c] != static_cast<float>(Scale(*recipe.normalize, c))) return false;
    if (plan.b[c] != static_cast<float>(Shift(*recipe.normalize, c))) return false;
  }
  return true;
}

OutputRow PlaceOfRow(const PackPlan& plan, int row, int height, int width, void* out) {
  const size_t row_bytes = static_cast<size_t>(width) * ElementBytes(plan.dtype);
  const bool interleaved = plan.memory_format == MemoryFormat::kChannelsLast;
  return {.bytes = static_cast<uint8_t*>(out) +
                   static_cast<size_t>(row) * row_bytes * (interleaved ? 3 : 1),
          .plane_bytes = interleaved ? 0 : row_bytes * static_cast<size_t>(height),
          .streamed = 3 * row_bytes * static_cast<size_t>(height) >= kStreamedBytes};
}

void PackRow(const PackPlan& plan, const PlanarRow& pixels, int row, int height, int width,
             void* out) {
  const OutputRow place = PlaceOfRow(plan, row, height, width, out);
  const Row job = {.plan = &plan,
                   .planes = pixels.planes,
                   .stride = pixels.stride,
                   .width = static_cast<size_t>(width),
                   .out = place.bytes,
                   .plane_bytes = place.plane_bytes,
                   .streamed = place.streamed};
  switch (plan.dtype) {
    case DType::kUInt8:
      return PackUInt8(job);
    case DType::kFloat16:
      return HWY_DYNAMIC_DISPATCH(PackFloat16)(job);
    case DType::kBFloat16:
      return HWY_DYNAMIC_DISPATCH(PackBFloat16)(job);
    case DType::kFloat32:
      return HWY_DYNAMIC_DISPATCH(PackFloat32)(job);
  }
}

void FinishPacking() { hwy::FlushStream(); }

}  // namespace headrace
#endif  // HWY_ONCE
