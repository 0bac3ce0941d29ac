#include "core/augment/portable_kernels.h"

#include <algorithm>

namespace headrace::portable {
namespace {

constexpr int32_t kHalf = 1 << (kWeightBits - 1);

uint8_t ToByte(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kWeightBits, 0, 255)); }

int32_t Spread(uint8_t pixel) {
  const int32_t q = pixel - 128;
  return static_cast<int32_t>(static_cast<uint32_t>(q) << 16 |
                              (static_cast<uint32_t>(q) << 8 & 0xffff));
}

// One output of one plane, in fixed point.
int32_t Sum(const HorizontalTable& table, const uint8_t* plane, size_t output) {
  int32_t high = 0;
  int32_t low = 0;
  if (table.kind == HorizontalTable::Kind::kDots) {
    const size_t parts = table.vector_outputs / 4;
    const size_t lane = output % table.vector_outputs;
    const size_t group = output / table.vector_outputs * 4 + lane % 4, part = lane / 4;
    const uint8_t* in = plane + table.start[group * parts + part];
    for (size_t t = 0; t < table.taps; ++t) {
      const size_t at = 8 * (group * parts * table.taps / 8 + t / 8 * parts + part) + t % 8;
      high += in[t] * table.high[at];
      low += in[t] * table.low[at];
    }
  } else {
    const size_t block = output / 4;
    const uint8_t* in = plane + table.start[block];
    for (size_t t = 0; t < 2 * table.pairs; ++t) {
      const size_t lane = 8 * (t / 2 * table.blocks + block) + 2 * (output % 4) + t % 2;
      const uint8_t from = table.shuffle[2 * lane];
      if (from >= 16) continue;
      high += in[from] * table.high[lane];
      low += in[from] * table.low[lane];
    }
  }
  return static_cast<int32_t>((static_cast<uint32_t>(high) << kWeightLowBits) +
                              static_cast<uint32_t>(low));
}

template <typename Out, typename Convert>
void Horizontal(const HorizontalTable& table, const uint8_t* in, size_t in_stride, Out* out,
                Convert convert) {
  const size_t out_stride = PlaneStride(table.outputs);
  for (size_t c = 0; c < 3; ++c) {
    for (size_t i = 0; i < out_stride; ++i) {
      const bool exists = i < static_cast<size_t>(table.outputs);
      out[c * out_stride + i] =
          convert(ToByte((exists ? Sum(table, in + c * in_stride, i) : 0) + kHalf));
    }
  }
}

}  // namespace

void SplitRow(const uint8_t* rgb, int width, uint8_t* planes) {
  const size_t stride = PlaneStride(width);
  for (size_t x = 0; x < static_cast<size_t>(width); ++x) {
    for (size_t c = 0; c < 3; ++c) planes[c * stride + x] = rgb[3 * x + c];
  }
}

void MergeRow(const uint8_t* planes, size_t stride, int width, uint8_t* rgb) {
  for (size_t x = 0; x < static_cast<size_t>(width); ++x) {
    for (size_t c = 0; c < 3; ++c) rgb[3 * x + c] = planes[c * stride + x];
  }
}

void MirrorRow(const uint8_t* in, size_t in_stride, int width, uint8_t* out) {
  for (size_t c = 0; c < 3; ++c, in += in_stride)
    std::reverse_copy(in, in + width, out + c * PlaneStride(width));
}

void SpreadRow(const uint8_t* in, size_t in_stride, size_t n, int32_t* out) {
  for (size_t c = 0; c < 3; ++c, in += in_stride, out += n) std::transform(in, in + n, out, Spread);
}

void ResizeRow(const HorizontalTable& table, const uint8_t* in, size_t in_stride, uint8_t* out) {
  Horizontal(table, in, in_stride, out, [](uint8_t pixel) { return pixel; });
}

void ResizeRowSpread(const HorizontalTable& table, const uint8_t* in, size_t in_stride,
                     int32_t* out) {
  Horizontal(table, in, in_stride, out, Spread);
}

void BlendRows(const int32_t* const* rows, const int32_t* weights, int taps, int32_t bias, size_t n,
               uint8_t* out) {
  for (size_t i = 0; i < n; ++i) {
    uint32_t sum = static_cast<uint32_t>(bias);
    for (int t = 0; t < taps; ++t) {
      const int32_t weight = static_cast<int16_t>(weights[t]) * 256 + (weights[t] >> 16);
      sum += static_cast<uint32_t>((rows[t][i] >> 16) * weight);
    }
    out[i] = ToByte(static_cast<int32_t>(sum));
  }
}

}  // namespace headrace::portable
