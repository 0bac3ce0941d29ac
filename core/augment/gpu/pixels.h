// From coefficients to elements: what one thread does with one block, one pixel, one output of a pass. A thread of several takes each
// `threads`th item of a chunk. Internal to core/augment/gpu.
#pragma once

#include <cstdint>

#include "core/augment/filter_math.h"
#include "core/augment/gpu/burst.h"
#include "core/augment/gpu/machine.h"
#include "core/base/host_device.h"
#include "core/decode/cmyk.h"
#include "core/decode/segment/pixel_math.h"

namespace headrace::gpu {

// Samples of block `block` of the image.
HEADRACE_GPU inline void MakeBlock(const Burst& burst, const Image& image, uint32_t block) {
  uint32_t c = 0;
  for (; block >= image.components[c].blocks; ++c) block -= image.components[c].blocks;
  const Component& component = image.components[c];
  const int16_t* in = burst.coefficients + (uint64_t{component.coefficients} + block) * 64;
  const uint16_t* quant = burst.quant + uint64_t{component.quant} * 64;
  int v[64];
  uint32_t rest = 0;
  HEADRACE_UNROLL
  for (int y = 0; y < 8; ++y) {
    uint32_t words[4];
    LoadFour(in + 8 * y, words);
    HEADRACE_UNROLL
    for (int x = 0; x < 4; ++x) {
      if (y > 0) rest |= words[x];
      v[8 * y + 2 * x] = WrapTo16(static_cast<int16_t>(words[x]) * static_cast<int16_t>(quant[8 * y + 2 * x]));
      v[8 * y + 2 * x + 1] = WrapTo16(static_cast<int16_t>(words[x] >> 16) * static_cast<int16_t>(quant[8 * y + 2 * x + 1]));
    }
  }
  TransformBlock(v, rest != 0);
  uint8_t* out = burst.samples + component.plane + uint64_t{block / component.blocks_per_row} * 8 * component.stride +
                 block % component.blocks_per_row * 8;
  HEADRACE_UNROLL
  for (int y = 0; y < 8; ++y) {
    uint32_t words[2];
    HEADRACE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int* four = v + 8 * y + 4 * half;
      words[half] = ClampToByte(four[0] + 128) | ClampToByte(four[1] + 128) << 8 | ClampToByte(four[2] + 128) << 16 |
                    static_cast<uint32_t>(ClampToByte(four[3] + 128)) << 24;
    }
    StoreTwo(words, out + uint64_t{component.stride} * y);
  }
}

// The component's value at a pixel of the stored image.
HEADRACE_GPU inline int SampleAt(const Burst& burst, const Component& component, int x, int y) {
  const uint8_t* plane = burst.samples + component.plane - component.first_column;
  const auto line_at = [&](int line) { return plane + int64_t{line - component.first_line} * component.stride; };
  if (component.upsampling == Upsampling::kNone) return line_at(y)[x];
  if (component.upsampling == Upsampling::kReplicate) return line_at(y / component.v_expand)[x / component.h_expand];
  const bool wide = component.upsampling != Upsampling::kFancyH1V2, high = component.upsampling != Upsampling::kFancyH2V1;
  const int column = wide ? x / 2 : x, line = high ? y / 2 : y;
  const int other = x % 2 == 0 ? Max(column - 1, 0) : Min(column + 1, component.width - 1);
  const uint8_t* near = line_at(line);
  if (!high) return (3 * near[column] + near[other] + 1 + x % 2) >> 2;
  const uint8_t* far = line_at(y % 2 == 0 ? Max(line - 1, 0) : Min(line + 1, component.height - 1));
  if (!wide) return (3 * near[column] + far[column] + 1 + y % 2) >> 2;
  return (3 * (3 * near[column] + far[column]) + 3 * near[other] + far[other] + 8 - x % 2) >> 4;
}

// A pixel of the oriented image: upsampling, colour, orientation.
HEADRACE_GPU inline void Pixel(const Burst& burst, const Image& image, int out_x, int out_y, uint8_t* rgb) {
  int y = image.top + out_y, x = image.left + out_x;
  if (image.transpose) {
    const int swapped = x;
    x = y;
    y = swapped;
  }
  if (image.flip_rows) y = image.stored_height - 1 - y;
  if (image.flip_columns) x = image.stored_width - 1 - x;
  int in[kMaxComponents];
  HEADRACE_UNROLL
  for (uint32_t c = 0; c < kMaxComponents; ++c) {
    if (c < image.num_components) in[c] = SampleAt(burst, image.components[c], x, y);
  }
  if (image.color == JpegColor::kGrey) {
    rgb[0] = rgb[1] = rgb[2] = static_cast<uint8_t>(in[0]);
    return;
  }
  if (image.color == JpegColor::kYCbCr) return YccToRgb(in[0], in[1], in[2], rgb, rgb + 1, rgb + 2);
  for (int c = 0; c < 3; ++c) rgb[c] = static_cast<uint8_t>(in[c]);
  if (image.color == JpegColor::kYcck) YccToRgb(in[0], in[1], in[2], rgb, rgb + 1, rgb + 2);
  if (image.color == JpegColor::kRgb) return;
  for (int c = 0; c < 3; ++c) {  // libjpeg gives 255 − R for YCCK
    rgb[c] = InkToColor(image.color == JpegColor::kYcck ? rgb[c] : 255 - rgb[c], in[3]);
  }
}

HEADRACE_GPU inline uint8_t* PixelsAt(const Burst& burst, const Image& image) {
  return (image.over_coefficients ? reinterpret_cast<uint8_t*>(burst.coefficients) : burst.samples) + image.pixels;
}

// Four pixels of a line at a time.
HEADRACE_GPU inline void MakePixels(const Burst& burst, const Image& image, uint32_t first, uint32_t thread, uint32_t threads) {
  const uint32_t fours = (static_cast<uint32_t>(image.width) + 3) / 4;
  const uint32_t end = Min(first + kPixelsPerChunk / 4, fours * static_cast<uint32_t>(image.height));
  for (uint32_t i = first + thread; i < end; i += threads) {
    const uint32_t out_y = i / fours, out_x = i % fours * 4;
    uint8_t rgb[4][3];
    HEADRACE_UNROLL
    for (int k = 0; k < 4; ++k) {
      // Behind the line's end the last pixel again: the planes are wide enough.
      Pixel(burst, image, Min(static_cast<int>(out_x) + k, image.width - 1), static_cast<int>(out_y), rgb[k]);
    }
    uint8_t* out = PixelsAt(burst, image) + uint64_t{out_y} * image.pixel_stride + out_x;
    const uint64_t plane = uint64_t{image.pixel_stride} * static_cast<uint32_t>(image.height);
    HEADRACE_UNROLL
    for (int c = 0; c < 3; ++c) StoreBytes(rgb[0][c], rgb[1][c], rgb[2][c], rgb[3][c], out + plane * c);
  }
}

template <class Kernel>
HEADRACE_GPU void MakeNumbers(const Burst& burst, const Axis& axis, uint32_t i) {
  const Placement placement(Kernel::kSupport, axis.in, axis.out);
  const int output = axis.first + static_cast<int>(i);
  const Span source = placement.Source(output);
  const Weights<Kernel> at(placement, output);
  double sum = 0.0;
  for (int t = 0; t < source.size(); ++t) sum += at(t);
  burst.numbers[1][axis.start + i] = source.begin;
  int32_t* weights = burst.numbers[1] + axis.weights + uint64_t{i} * axis.taps;
  for (int t = 0; t < static_cast<int>(axis.taps); ++t) weights[t] = t < source.size() ? RoundWeight(at(t), sum) : 0;
}

// Output i of an axis.
HEADRACE_GPU inline void MakeOutput(const Burst& burst, const Axis& axis, uint32_t i) {
  switch (axis.kernel) {
    case AxisKernel::kBrought:
      return;
    case AxisKernel::kBox:
      return MakeNumbers<Box>(burst, axis, i);
    case AxisKernel::kBilinear:
      return MakeNumbers<Bilinear>(burst, axis, i);
    case AxisKernel::kBicubic:
      return MakeNumbers<Bicubic>(burst, axis, i);
  }
}

// Three planes of bytes.
struct Planes {
  const uint8_t* bytes;
  uint32_t stride;
  uint64_t plane;
};

// Output (x, y) of one pass over the planes, by channel.
HEADRACE_GPU inline void Filter(const Burst& burst, const Planes& in, const Axis& axis, bool vertical, uint32_t x, uint32_t y, uint8_t* out) {
  if (axis.taps == 0) {
    const uint8_t* from = in.bytes + uint64_t{in.stride} * y + x;
    for (int c = 0; c < 3; ++c) out[c] = from[in.plane * c];
    return;
  }
  const uint32_t i = vertical ? y : x;
  const int32_t* numbers = burst.numbers[axis.kernel != AxisKernel::kBrought];
  const int32_t first = Load(numbers + axis.start + i) - axis.origin;
  const int32_t* weights = numbers + axis.weights + uint64_t{i} * axis.taps;
  const uint32_t step = vertical ? in.stride : 1;
  const uint8_t* from = vertical ? in.bytes + uint64_t{in.stride} * first + x : in.bytes + uint64_t{in.stride} * y + first;
  int32_t sums[3] = {1 << 21, 1 << 21, 1 << 21};
  for (uint32_t t = 0; t < axis.taps; ++t, from += step) {
    const int32_t weight = Load(weights + t);
    if (weight == 0) continue;  // behind an output's last weight may be no input
    HEADRACE_UNROLL
    for (int c = 0; c < 3; ++c) sums[c] += weight * from[in.plane * c];
  }
  HEADRACE_UNROLL
  for (int c = 0; c < 3; ++c) out[c] = ClampToByte(sums[c] >> 22);
}

HEADRACE_GPU inline Planes PixelsOf(const Burst& burst, const Image& image) {
  return {PixelsAt(burst, image), image.pixel_stride, uint64_t{image.pixel_stride} * static_cast<uint32_t>(image.height)};
}

// Images both of whose axes change: the first pass, to bytes.
HEADRACE_GPU inline void MakeFirstPass(const Burst& burst, const Image& image, uint32_t first, uint32_t thread, uint32_t threads) {
  const bool vertical = image.vertical_first;
  const Axis axis = vertical ? image.vertical : image.horizontal;
  const uint32_t width = vertical ? static_cast<uint32_t>(image.width) : axis.outputs;
  const Planes in = PixelsOf(burst, image);
  const uint32_t end = Min(first + kPixelsPerChunk, width * image.between_height);
  for (uint32_t i = first + thread; i < end; i += threads) {
    const uint32_t x = i % width, y = i / width;
    uint8_t* out = burst.samples + image.between + uint64_t{image.between_stride} * y + x;
    uint8_t bytes[3];
    Filter(burst, in, axis, vertical, x, y, bytes);
    for (int c = 0; c < 3; ++c) out[uint64_t{image.between_stride} * image.between_height * c] = bytes[c];
  }
}

// The last pass, if any, flips, and the element of each byte.
HEADRACE_GPU inline void MakeLastPass(const Burst& burst, const Image& image, uint32_t first, uint32_t thread, uint32_t threads) {
  const bool both = image.horizontal.taps != 0 && image.vertical.taps != 0;
  const bool vertical = both ? !image.vertical_first : image.vertical.taps != 0;
  const Axis axis = vertical ? image.vertical : image.horizontal;
  Planes in = PixelsOf(burst, image);
  if (both) {
    in = {burst.samples + image.between, image.between_stride, uint64_t{image.between_stride} * image.between_height};
  }
  const uint32_t width = burst.output.width, height = burst.output.height, pixels = width * height;
  const uint32_t end = Min(first + kPixelsPerChunk, pixels);
  for (uint32_t i = first + thread; i < end; i += threads) {
    const uint32_t x = i % width, y = i / width;
    const uint32_t from_x = image.mirrored ? width - 1 - x : x, from_y = image.upside_down ? height - 1 - y : y;
    uint8_t bytes[3];
    Filter(burst, in, axis, vertical, from_x, from_y, bytes);
    for (int c = 0; c < 3; ++c) {
      const uint32_t value = burst.values[256 * c + bytes[c]];
      const uint64_t at = uint64_t{image.sample} * 3 * pixels + (burst.output.channels_last ? uint64_t{3} * i + c : uint64_t{pixels} * c + i);
      switch (burst.output.element) {
        case Element::kUInt8:
          static_cast<uint8_t*>(burst.out)[at] = static_cast<uint8_t>(value);
          break;
        case Element::kBits16:
          static_cast<uint16_t*>(burst.out)[at] = static_cast<uint16_t>(value);
          break;
        case Element::kFloat32:
          static_cast<uint32_t*>(burst.out)[at] = value;
          break;
      }
    }
  }
}

}  // namespace headrace::gpu
