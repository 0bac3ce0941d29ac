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

// Four bytes of a line of `size` bytes, whole words, from `offset` on. Those outside are anything.
HEADRACE_GPU inline uint32_t LoadBytes(const uint8_t* line, int size, int offset) {
  const int first = offset & ~3, second = first + 4;
  const uint32_t low = first >= 0 && first < size ? LoadOne(line + first) : 0;
  const uint32_t high = second >= 0 && second < size ? LoadOne(line + second) : 0;
  return PickBytes(low, high, 0x3210 + 0x1111 * static_cast<uint32_t>(offset & 3));
}

// SampleAt of the pixels (x, y) … (x + 3, y). Those behind `last` are anything.
HEADRACE_GPU inline void FourSamplesAt(const Burst& burst, const Component& component, int x, int last, int y, int* samples) {
  const Upsampling upsampling = component.upsampling;
  const bool high = upsampling == Upsampling::kFancyH2V2;
  if (!high && upsampling != Upsampling::kNone && upsampling != Upsampling::kFancyH2V1) {
    HEADRACE_UNROLL
    for (int k = 0; k < 4; ++k) samples[k] = SampleAt(burst, component, Min(x + k, last), y);
    return;
  }
  const auto load = [&](int line, int column) {
    const uint8_t* from = burst.samples + component.plane + static_cast<uint64_t>(line - component.first_line) * component.stride;
    return LoadBytes(from, static_cast<int>(component.stride), column - component.first_column);
  };
  if (upsampling == Upsampling::kNone) {
    const uint32_t four = load(y, x);
    HEADRACE_UNROLL
    for (int k = 0; k < 4; ++k) samples[k] = static_cast<int>(four >> (8 * k) & 0xFF);
    return;
  }
  // Columns first - 1 … first + 2 have all that the four need.
  const int first = x / 2, line = high ? y / 2 : y;
  const uint32_t near = load(line, first - 1);
  const uint32_t far = high ? load(y % 2 == 0 ? Max(line - 1, 0) : Min(line + 1, component.height - 1), first - 1) : 0;
  int columns[4];
  HEADRACE_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int sample = static_cast<int>(near >> (8 * i) & 0xFF);
    columns[i] = high ? 3 * sample + static_cast<int>(far >> (8 * i) & 0xFF) : sample;
    if (i > 0 && first - 1 + i >= component.width) columns[i] = columns[i - 1];
  }
  if (first == 0) columns[0] = columns[1];
  const bool odd = x % 2 != 0;
  HEADRACE_UNROLL
  for (int k = 0; k < 4; ++k) {
    // Pixel x + k: of an even x columns 1, 1, 2, 2 with 0, 2, 1, 3, of an odd one 1, 2, 2, 3 with 2, 1, 3, 2.
    const int even_own = columns[1 + k / 2], even_other = columns[k % 2 == 0 ? k / 2 : 2 + k / 2];
    const int odd_own = columns[1 + (k + 1) / 2], odd_other = columns[k % 2 == 0 ? 2 + k / 2 : (k + 1) / 2];
    const int own = odd ? odd_own : even_own, other = odd ? odd_other : even_other;
    const int right = odd == (k % 2 != 0) ? 0 : 1;  // (x + k) % 2
    samples[k] = high ? (3 * own + other + 8 - right) >> 4 : (3 * own + other + 1 + right) >> 2;
  }
}

HEADRACE_GPU inline void ToRgb(JpegColor color, const int* in, uint8_t* rgb) {
  if (color == JpegColor::kGrey) {
    rgb[0] = rgb[1] = rgb[2] = static_cast<uint8_t>(in[0]);
    return;
  }
  if (color == JpegColor::kYCbCr) return YccToRgb(in[0], in[1], in[2], rgb, rgb + 1, rgb + 2);
  for (int c = 0; c < 3; ++c) rgb[c] = static_cast<uint8_t>(in[c]);
  if (color == JpegColor::kYcck) YccToRgb(in[0], in[1], in[2], rgb, rgb + 1, rgb + 2);
  if (color == JpegColor::kRgb) return;
  for (int c = 0; c < 3; ++c) {  // libjpeg gives 255 − R for YCCK
    rgb[c] = InkToColor(color == JpegColor::kYcck ? rgb[c] : 255 - rgb[c], in[3]);
  }
}

// Four pixels of a line of the oriented image, by channel: upsampling, colour, orientation. Those behind its end are anything.
HEADRACE_GPU inline void FourPixels(const Burst& burst, const Image& image, int out_x, int out_y, uint32_t* words) {
  int in[kMaxComponents][4];
  const bool turned = image.transpose || image.flip_columns;
  HEADRACE_UNROLL
  for (uint32_t c = 0; c < kMaxComponents; ++c) {
    if (c >= image.num_components) continue;
    const Component& component = image.components[c];
    if (!turned) {
      const int y = image.top + out_y, last = image.left + image.width - 1;
      FourSamplesAt(burst, component, image.left + out_x, last, image.flip_rows ? image.stored_height - 1 - y : y, in[c]);
      continue;
    }
    HEADRACE_UNROLL
    for (int k = 0; k < 4; ++k) {
      const int oriented_x = image.left + Min(out_x + k, image.width - 1), oriented_y = image.top + out_y;
      int x = image.transpose ? oriented_y : oriented_x, y = image.transpose ? oriented_x : oriented_y;
      if (image.flip_rows) y = image.stored_height - 1 - y;
      if (image.flip_columns) x = image.stored_width - 1 - x;
      in[c][k] = SampleAt(burst, component, x, y);
    }
  }
  words[0] = words[1] = words[2] = 0;
  HEADRACE_UNROLL
  for (int k = 0; k < 4; ++k) {
    const int pixel[kMaxComponents] = {in[0][k], in[1][k], in[2][k], in[3][k]};
    uint8_t rgb[3];
    ToRgb(image.color, pixel, rgb);
    HEADRACE_UNROLL
    for (int c = 0; c < 3; ++c) words[c] |= static_cast<uint32_t>(rgb[c]) << (8 * k);
  }
}

HEADRACE_GPU inline uint8_t* PixelsAt(const Burst& burst, const Image& image) {
  return (image.over_coefficients ? reinterpret_cast<uint8_t*>(burst.coefficients) : burst.samples) + image.pixels;
}

HEADRACE_GPU inline uint32_t Fours(uint32_t count) { return (count + 3) / 4; }

HEADRACE_GPU inline void MakePixels(const Burst& burst, const Image& image, uint32_t first, uint32_t thread, uint32_t threads) {
  const uint32_t fours = Fours(static_cast<uint32_t>(image.width));
  const uint32_t end = Min(first + kFoursPerChunk, fours * static_cast<uint32_t>(image.height));
  for (uint32_t i = first + thread; i < end; i += threads) {
    const uint32_t out_y = i / fours, out_x = i % fours * 4;
    uint32_t words[3];
    FourPixels(burst, image, static_cast<int>(out_x), static_cast<int>(out_y), words);
    uint8_t* out = PixelsAt(burst, image) + uint64_t{out_y} * image.pixel_stride + out_x;
    const uint64_t plane = uint64_t{image.pixel_stride} * static_cast<uint32_t>(image.height);
    HEADRACE_UNROLL
    for (int c = 0; c < 3; ++c) StoreOne(words[c], out + plane * c);
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

// Three planes of bytes. Lines begin at words.
struct Planes {
  const uint8_t* bytes;
  uint32_t stride;
  uint64_t plane;
};

// What one output of an axis is made of: inputs from `first` on.
struct Taps {
  HEADRACE_GPU Taps(const Burst& burst, const Axis& axis, uint32_t i) {
    const int32_t* numbers = burst.numbers[axis.kernel != AxisKernel::kBrought];
    first = static_cast<uint32_t>(Load(numbers + axis.start + i) - axis.origin);
    weights = numbers + axis.weights + uint64_t{i} * axis.taps;
  }
  uint32_t first;
  const int32_t* weights;
};

constexpr uint32_t kHalf = 1 << 21;
HEADRACE_GPU inline uint32_t SumToByte(uint32_t sum) { return ClampToByte(static_cast<int32_t>(sum) >> 22); }

// Outputs (x, y) … (x + 3, y) of a vertical pass, by channel; x is a multiple of 4. Those behind the line's end are anything.
HEADRACE_GPU inline void FilterDown(const Burst& burst, const Planes& in, const Axis& axis, uint32_t x, uint32_t y, uint32_t* words) {
  if (axis.taps == 0) {
    for (int c = 0; c < 3; ++c) words[c] = LoadOne(in.bytes + in.plane * c + uint64_t{in.stride} * y + x);
    return;
  }
  const Taps taps(burst, axis, y);
  const uint8_t* from = in.bytes + uint64_t{in.stride} * taps.first + x;
  uint32_t sums[3][4];
  HEADRACE_UNROLL
  for (int i = 0; i < 12; ++i) sums[i / 4][i % 4] = kHalf;
  for (uint32_t t = 0; t < axis.taps; ++t, from += in.stride) {
    const auto weight = static_cast<uint32_t>(Load(taps.weights + t));
    if (weight == 0) continue;  // behind an output's last weight may be no input
    HEADRACE_UNROLL
    for (int c = 0; c < 3; ++c) {
      const uint32_t four = LoadOne(from + in.plane * c);
      HEADRACE_UNROLL
      for (int k = 0; k < 4; ++k) sums[c][k] += weight * (four >> (8 * k) & 0xFF);
    }
  }
  HEADRACE_UNROLL
  for (int c = 0; c < 3; ++c) {
    words[c] = SumToByte(sums[c][0]) | SumToByte(sums[c][1]) << 8 | SumToByte(sums[c][2]) << 16 | SumToByte(sums[c][3]) << 24;
  }
}

// Outputs (x, y) … (x, y + kLines - 1) of a horizontal pass: bytes[line][channel]. Of the lines behind the first `lines` the last
// again. Four inputs a word: a weight is 2¹⁶ a + 2⁸ b + c, and each of these goes with four bytes at once.
template <int kLines>
HEADRACE_GPU void FilterAlong(const Burst& burst, const Planes& in, const Axis& axis, uint32_t x, uint32_t y, uint32_t lines,
                              uint32_t (*bytes)[3]) {
  const Taps taps(burst, axis, x);
  uint32_t sums[kLines][3];
  HEADRACE_UNROLL
  for (int i = 0; i < 3 * kLines; ++i) sums[i / 3][i % 3] = kHalf;
  const auto weight = [&](uint32_t input) {
    const uint32_t t = input - taps.first;  // wraps in front of the first
    return t < axis.taps ? static_cast<uint32_t>(Load(taps.weights + t)) : 0;
  };
  for (uint32_t word = taps.first / 4; 4 * word < taps.first + axis.taps; ++word) {
    const uint32_t w[4] = {weight(4 * word), weight(4 * word + 1), weight(4 * word + 2), weight(4 * word + 3)};
    if ((w[0] | w[1] | w[2] | w[3]) == 0) continue;  // behind an output's last weight may be no input
    const auto parts = [&](uint32_t byte) {  // of the four, bits 8 · byte …
      return PickBytes(PickBytes(w[0], w[1], 0x40 + 0x11 * byte), PickBytes(w[2], w[3], 0x40 + 0x11 * byte), 0x5410);
    };
    const uint32_t low = parts(0), middle = parts(1), high = parts(2);
    HEADRACE_UNROLL
    for (int line = 0; line < kLines; ++line) {
      const uint64_t at = uint64_t{in.stride} * (y + Min<uint32_t>(static_cast<uint32_t>(line), lines - 1)) + 4 * word;
      HEADRACE_UNROLL
      for (int c = 0; c < 3; ++c) {
        const uint32_t four = LoadOne(in.bytes + in.plane * c + at);
        sums[line][c] += DotBytes(four, low, DotBytes(four, middle, DotSignedBytes(four, high, 0) << 8) << 8);
      }
    }
  }
  HEADRACE_UNROLL
  for (int i = 0; i < 3 * kLines; ++i) bytes[i / 3][i % 3] = SumToByte(sums[i / 3][i % 3]);
}

HEADRACE_GPU inline Planes PixelsOf(const Burst& burst, const Image& image) {
  return {PixelsAt(burst, image), image.pixel_stride, uint64_t{image.pixel_stride} * static_cast<uint32_t>(image.height)};
}

// Images both of whose axes change: the first pass, to bytes.
HEADRACE_GPU inline void MakeFirstPass(const Burst& burst, const Image& image, uint32_t first, uint32_t thread, uint32_t threads) {
  const Planes in = PixelsOf(burst, image);
  const uint32_t stride = image.between_stride, height = image.between_height;
  uint8_t* const between = burst.samples + image.between;
  const uint64_t plane = uint64_t{stride} * height;
  if (image.vertical_first) {
    const uint32_t fours = Fours(static_cast<uint32_t>(image.width)), end = Min(first + kFoursPerChunk, fours * height);
    for (uint32_t i = first + thread; i < end; i += threads) {
      const uint32_t x = i % fours * 4, y = i / fours;
      uint32_t words[3];
      FilterDown(burst, in, image.vertical, x, y, words);
      for (int c = 0; c < 3; ++c) StoreOne(words[c], between + plane * c + uint64_t{stride} * y + x);
    }
    return;
  }
  const uint32_t width = image.horizontal.outputs, end = Min(first + kFoursPerChunk, width * Fours(height));
  for (uint32_t i = first + thread; i < end; i += threads) {
    const uint32_t x = i % width, y = i / width * 4, lines = Min(height - y, 4u);
    uint32_t bytes[4][3];
    FilterAlong<4>(burst, in, image.horizontal, x, y, lines, bytes);
    HEADRACE_UNROLL
    for (uint32_t line = 0; line < 4; ++line) {
      if (line >= lines) break;
      for (int c = 0; c < 3; ++c) between[plane * c + uint64_t{stride} * (y + line) + x] = static_cast<uint8_t>(bytes[line][c]);
    }
  }
}

// Elements side by side, `count` of them, a multiple of 4, as is `at`.
HEADRACE_GPU inline void StoreElements(const Burst& burst, uint64_t at, const uint32_t* values, uint32_t count) {
  uint8_t* const out = static_cast<uint8_t*>(burst.out);
  HEADRACE_UNROLL
  for (uint32_t i = 0; i < 12; i += 4) {
    if (i >= count) break;
    const uint32_t* v = values + i;
    switch (burst.output.element) {
      case Element::kUInt8:
        StoreOne(v[0] | v[1] << 8 | v[2] << 16 | v[3] << 24, out + at + i);
        break;
      case Element::kBits16: {
        const uint32_t words[2] = {v[0] | v[1] << 16, v[2] | v[3] << 16};
        StoreTwo(words, out + 2 * (at + i));
        break;
      }
      case Element::kFloat32:
        StoreFour(v, out + 4 * (at + i));
        break;
    }
  }
}

HEADRACE_GPU inline void StoreElement(const Burst& burst, uint64_t at, uint32_t value) {
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

// The last pass, if any, flips, and the element of each byte. `values` as in Burst.
HEADRACE_GPU inline void MakeLastPass(const Burst& burst, const Image& image, const uint32_t* values, uint32_t first, uint32_t thread,
                                      uint32_t threads) {
  const bool both = image.horizontal.taps != 0 && image.vertical.taps != 0;
  const bool along = both ? image.vertical_first : image.horizontal.taps != 0;
  Planes in = PixelsOf(burst, image);
  if (both) {
    in = {burst.samples + image.between, image.between_stride, uint64_t{image.between_stride} * image.between_height};
  }
  const uint32_t width = burst.output.width, height = burst.output.height, pixels = width * height, fours = Fours(width);
  const uint64_t sample = uint64_t{image.sample} * 3 * pixels;
  const uint32_t end = Min(first + kFoursPerChunk, fours * height);
  for (uint32_t i = first + thread; i < end; i += threads) {
    const uint32_t from_x = i % fours * 4, from_y = i / fours;
    const uint32_t y = image.upside_down ? height - 1 - from_y : from_y;
    uint32_t words[3] = {};
    if (along) {
      HEADRACE_UNROLL
      for (uint32_t k = 0; k < 4; ++k) {
        if (from_x + k >= width) break;
        uint32_t bytes[1][3];
        FilterAlong<1>(burst, in, image.horizontal, from_x + k, from_y, 1, bytes);
        for (int c = 0; c < 3; ++c) words[c] |= bytes[0][c] << (8 * k);
      }
    } else {
      FilterDown(burst, in, image.vertical, from_x, from_y, words);
    }
    if (width % 4 == 0) {
      const uint64_t at = uint64_t{y} * width + (image.mirrored ? width - 4 - from_x : from_x);
      uint32_t elements[3][4];
      HEADRACE_UNROLL
      for (int c = 0; c < 3; ++c) {
        const uint32_t word = image.mirrored ? PickBytes(words[c], 0, 0x0123) : words[c];
        HEADRACE_UNROLL
        for (int k = 0; k < 4; ++k) elements[c][k] = values[256 * c + (word >> (8 * k) & 0xFF)];
      }
      if (burst.output.channels_last) {
        uint32_t mixed[12];
        HEADRACE_UNROLL
        for (int k = 0; k < 12; ++k) mixed[k] = elements[k % 3][k / 3];
        StoreElements(burst, sample + 3 * at, mixed, 12);
      } else {
        for (int c = 0; c < 3; ++c) StoreElements(burst, sample + uint64_t{pixels} * c + at, elements[c], 4);
      }
      continue;
    }
    for (uint32_t k = 0; k < 4 && from_x + k < width; ++k) {
      const uint64_t at = uint64_t{y} * width + (image.mirrored ? width - 1 - from_x - k : from_x + k);
      for (int c = 0; c < 3; ++c) {
        StoreElement(burst, sample + (burst.output.channels_last ? 3 * at + c : uint64_t{pixels} * c + at),
                     values[256 * c + (words[c] >> (8 * k) & 0xFF)]);
      }
    }
  }
}

}  // namespace headrace::gpu
