#include "core/decode/avif/yuv_to_rgb.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"

namespace headrace {
namespace {

// What is made of a picture, in libavif's order of preference.
enum class Way {
  kFixed8,     // libyuv on 8 bits, of deeper ones the high 8
  kFixed10,    // libyuv on 10 bits: chroma is interpolated with all of them (only with alpha)
  kFixed12,    // libyuv on 12 bits: the nearest chroma (only 4:2:0 with alpha)
  kCoefficients,  // libavif in float, from here on
  kIdentity,
  kYCgCo,
  kYCgCoRe,
  kGrey,
};

// libyuv's weights, in 1/64, of U in blue and green, V in green and red; those of Y in 1/64/257 with its bias.
struct Weights {
  int y, bias, blue_u, green_u, green_v, red_v;
};
constexpr Weights kBt601 = {18997, -1160, 128, 25, 52, 102}, kBt601Full = {16320, 32, 113, 22, 46, 90};
constexpr Weights kBt709 = {18997, -1160, 128, 14, 34, 115}, kBt709Full = {16320, 32, 119, 12, 30, 101};
constexpr Weights kBt2020 = {19003, -1160, 128, 12, 42, 107}, kBt2020Full = {16320, 32, 120, 11, 37, 94};

// Null where libyuv has none. Matrices: ITU-T H.273, table 4; 12 follows from the primaries, 0 means nothing to grey.
const Weights* WeightsOf(const YuvImage& image) {
  const AvifColour& colour = image.colour;
  int matrix = colour.matrix == 0 && image.chroma == Chroma::k400 ? 6 : colour.matrix;
  if (matrix == 12) {
    const int primaries = colour.primaries;
    matrix = primaries == 1 || primaries == 2 ? 1 : primaries == 5 || primaries == 6 ? 6 : primaries == 9 ? 9 : 12;
  }
  switch (matrix) {
    case 1: return colour.full_range ? &kBt709Full : &kBt709;
    case 2:
    case 5:
    case 6: return colour.full_range ? &kBt601Full : &kBt601;
    case 9: return colour.full_range ? &kBt2020Full : &kBt2020;
    default: return nullptr;
  }
}

// The shares of red and blue in Y.
struct Shares {
  float red, blue;
};

// H.273, equations 32 to 37, of the primaries' red, green, blue and white.
Shares SharesOfPrimaries(int primaries) {
  constexpr struct {
    int primaries;
    float xy[8];
  } kTable[] = {
      {1, {0.64f, 0.33f, 0.3f, 0.6f, 0.15f, 0.06f, 0.3127f, 0.329f}},
      {4, {0.67f, 0.33f, 0.21f, 0.71f, 0.14f, 0.08f, 0.310f, 0.316f}},
      {7, {0.630f, 0.340f, 0.310f, 0.595f, 0.155f, 0.070f, 0.3127f, 0.3290f}},
      {8, {0.681f, 0.319f, 0.243f, 0.692f, 0.145f, 0.049f, 0.310f, 0.316f}},
      {10, {1.0f, 0.0f, 0.0f, 1.0f, 0.0f, 0.0f, 0.3333f, 0.3333f}},
      {11, {0.680f, 0.320f, 0.265f, 0.690f, 0.150f, 0.060f, 0.314f, 0.351f}},
      {12, {0.680f, 0.320f, 0.265f, 0.690f, 0.150f, 0.060f, 0.3127f, 0.3290f}},
      {22, {0.630f, 0.340f, 0.295f, 0.605f, 0.155f, 0.077f, 0.3127f, 0.3290f}},
  };
  const float* xy = kTable[0].xy;
  for (const auto& row : kTable) {
    if (row.primaries == primaries) xy = row.xy;
  }
  const float rx = xy[0], ry = xy[1], gx = xy[2], gy = xy[3], bx = xy[4], by = xy[5], wx = xy[6], wy = xy[7];
  const float rz = 1.0f - (rx + ry), gz = 1.0f - (gx + gy), bz = 1.0f - (bx + by), wz = 1.0f - (wx + wy);
  const float whole = wy * (rx * (gy * bz - by * gz) + gx * (by * rz - ry * bz) + bx * (ry * gz - gy * rz));
  return {(ry * (wx * (gy * bz - by * gz) + wy * (bx * gz - gx * bz) + wz * (gx * by - bx * gy))) / whole,
          (by * (wx * (ry * gz - gy * rz) + wy * (gx * rz - rx * gz) + wz * (rx * gy - gx * ry))) / whole};
}

Shares SharesOf(const AvifColour& colour) {
  switch (colour.matrix) {
    case 1: return {0.2126f, 0.0722f};
    case 4: return {0.30f, 0.11f};
    case 7: return {0.212f, 0.087f};
    case 9: return {0.2627f, 0.0593f};
    case 12: return SharesOfPrimaries(colour.primaries);
    default: return {0.299f, 0.114f};
  }
}

absl::StatusOr<Way> WayOf(const YuvImage& image) {
  const int matrix = image.colour.matrix;
  const bool is_ycgco = matrix == 8 || matrix == 16 || matrix == 17;
  const bool deep = image.bits > 8;
  const bool unknown = matrix == 3 || matrix == 10 || matrix == 11 || matrix == 13 || matrix == 14 || matrix > 17;
  if (unknown || (is_ycgco && !image.colour.full_range) || (matrix == 16 && image.bits != 10) || matrix == 17 ||
      (matrix == 0 && (image.chroma == Chroma::k420 || image.chroma == Chroma::k422))) {
    return absl::InvalidArgumentError(absl::StrCat("AVIF: matrix ", matrix, " with this sampling, depth and range is not supported"));
  }
  const bool is_grey = image.chroma == Chroma::k400, has_alpha = image.alpha != nullptr;
  if (WeightsOf(image) != nullptr && (!is_grey || has_alpha)) {
    if (!has_alpha || !deep || is_grey) return Way::kFixed8;
    if (image.bits == 10) return Way::kFixed10;
    return image.chroma == Chroma::k420 ? Way::kFixed12 : Way::kFixed8;
  }
  if (is_grey) return Way::kGrey;
  return matrix == 0 ? Way::kIdentity : matrix == 8 ? Way::kYCgCo : matrix == 16 ? Way::kYCgCoRe : Way::kCoefficients;
}

int Clamp(int value, int highest) { return std::clamp(value, 0, highest); }

// Samples of a plane's row y.
class Row {
 public:
  Row(const uint8_t* plane, ptrdiff_t stride, int y, int bits) : row_(plane + stride * y), bits_(bits) {}
  int operator[](int x) const {
    if (bits_ == 8) return row_[x];
    return std::min(int{reinterpret_cast<const uint16_t*>(row_)[x]}, (1 << bits_) - 1);
  }

 private:
  const uint8_t* row_;
  int bits_;
};

// Chroma at pixels [left, left + out->size()) of row y. `shift`: of each sample, before anything else.
class Upsampler {
 public:
  Upsampler(const YuvImage& image, const uint8_t* plane, int y) : image_(image), plane_(plane), y_(y) {
    halves_rows_ = image.chroma == Chroma::k420;
    halves_columns_ = image.chroma != Chroma::k444;
  }

  void Nearest(int left, int shift, std::vector<int>* out) const {
    const Row row = RowAt(halves_rows_ ? y_ / 2 : y_);
    for (size_t i = 0; i < out->size(); ++i) {
      const int x = left + static_cast<int>(i);
      (*out)[i] = row[halves_columns_ ? x / 2 : x] >> shift;
    }
  }

  // 9:3:3:1 and 3:1. libyuv takes no neighbour for the first and the last column, nor for the last of an odd number, and none
  // for the first row, and the last of an even number.
  void Fixed(int left, int shift, std::vector<int>* out) const {
    if (!halves_columns_) return Nearest(left, shift, out);
    int near = y_, far = y_;
    if (halves_rows_) Neighbours(y_, image_.height, false, &near, &far);
    const Row near_row = RowAt(near), far_row = RowAt(far);
    for (size_t i = 0; i < out->size(); ++i) {
      int a, b;
      const bool alone = Neighbours(left + static_cast<int>(i), image_.width, true, &a, &b);
      const int p = near_row[a] >> shift, q = near_row[b] >> shift, r = far_row[a] >> shift, s = far_row[b] >> shift;
      const bool flat = near == far;
      (*out)[i] = flat ? (alone ? p : (3 * p + q + 2) >> 2) : alone ? (3 * p + r + 2) >> 2 : (9 * p + 3 * q + 3 * r + s + 8) >> 4;
    }
  }

  // libavif's own, of values out of `table`.
  void Float(int left, const std::vector<float>& table, std::vector<float>* out) const {
    int near = y_, far = y_;
    if (halves_rows_) Neighbours(y_, image_.height, false, &near, &far);
    const Row near_row = RowAt(near), far_row = RowAt(far);
    for (size_t i = 0; i < out->size(); ++i) {
      int a = left + static_cast<int>(i), b = a;
      if (!halves_columns_) {
        (*out)[i] = table[static_cast<size_t>(near_row[a])];
        continue;
      }
      Neighbours(a, image_.width, false, &a, &b);
      const auto at = [&](const Row& row, int x) { return table[static_cast<size_t>(row[x])]; };
      (*out)[i] = (at(near_row, a) * (9.0f / 16.0f)) + (at(near_row, b) * (3.0f / 16.0f)) + (at(far_row, a) * (3.0f / 16.0f)) +
                  (at(far_row, b) * (1.0f / 16.0f));
    }
  }

 private:
  Row RowAt(int y) const { return {plane_, image_.uv_stride, y, image_.bits}; }

  // The nearest sample of pixel x and the one on its other side; the same where there is none, and then true.
  static bool Neighbours(int x, int size, bool odd_end_alone, int* near, int* far) {
    const bool alone = x == 0 || (x == size - 1 && (x % 2 != 0 || odd_end_alone));
    *near = x / 2;
    *far = alone ? *near : x % 2 != 0 ? *near + 1 : *near - 1;
    return alone;
  }

  const YuvImage& image_;
  const uint8_t* plane_;
  int y_;
  bool halves_rows_, halves_columns_;
};

class Converter {
 public:
  Converter(const YuvImage& image, Way way, const Rect& region) : image_(image), way_(way), region_(region) {
    const auto width = static_cast<size_t>(region.width);
    u_.resize(width);
    v_.resize(width);
    const bool is_full = image.chroma == Chroma::k444, is_grey = image.chroma == Chroma::k400;
    shifts_alpha_ = way == Way::kFixed10 || (way == Way::kFixed8 && !is_grey);
    if (way < Way::kCoefficients) return;
    // Where libavif has a short way it divides afterwards, with libyuv.
    const int matrix = image.colour.matrix;
    const bool is_short = way == Way::kIdentity ? image.bits == 8 && image.colour.full_range
                                                : way == Way::kCoefficients ? is_full : is_grey && matrix != 8 && matrix != 16;
    divides_in_float_ = image.alpha != nullptr && image.premultiplied && !is_short;
    float_u_.resize(width);
    float_v_.resize(width);
    const bool full = image.colour.full_range;
    const int highest = (1 << image.bits) - 1, scale = 1 << (image.bits - 8);
    const float y_bias = full ? 0.0f : static_cast<float>(16 * scale), uv_bias = static_cast<float>(1 << (image.bits - 1));
    const auto y_range = static_cast<float>(full ? highest : 219 * scale), uv_range = static_cast<float>(full ? highest : 224 * scale);
    for (int i = 0; i <= highest; ++i) {
      const auto value = static_cast<float>(i);
      y_table_.push_back((value - y_bias) / y_range);
      uv_table_.push_back(way == Way::kIdentity ? y_table_.back() : (value - uv_bias) / uv_range);
    }
  }

  void Convert(int row, uint8_t* out) {
    const int y = region_.top + row;
    if (way_ < Way::kCoefficients) {
      ConvertFixed(y, out);
    } else {
      ConvertFloat(y, out);
    }
    if (image_.alpha != nullptr && image_.premultiplied && !divides_in_float_) Unpremultiply(y, out);
  }

 private:
  void ConvertFixed(int y, uint8_t* out) {
    const Weights& weights = *WeightsOf(image_);
    const int bits = image_.bits;
    // Where chroma loses its low bits: before the interpolation, or behind it.
    const int shift = way_ == Way::kFixed8 ? bits - 8 : 0, later = bits - 8 - shift;
    const Upsampler u(image_, image_.u, y), v(image_, image_.v, y);
    if (image_.chroma == Chroma::k400) {
      std::fill(u_.begin(), u_.end(), 128);
      std::fill(v_.begin(), v_.end(), 128);
    } else if (way_ == Way::kFixed12) {
      u.Nearest(region_.left, shift, &u_);
      v.Nearest(region_.left, shift, &v_);
    } else {
      u.Fixed(region_.left, shift, &u_);
      v.Fixed(region_.left, shift, &v_);
    }
    const Row luma(image_.y, image_.y_stride, y, bits);
    for (int i = 0; i < region_.width; ++i, out += 3) {
      const auto at = static_cast<size_t>(i);
      const int sample = luma[region_.left + i] >> shift, depth = bits - shift;
      const auto wide = static_cast<uint32_t>(sample << (16 - depth) | sample >> (2 * depth - 16));  // 16 bits
      const int light = static_cast<int>((wide * static_cast<uint32_t>(weights.y)) >> 16) + weights.bias;
      const int cb = std::min(u_[at] >> later, 255) - 128, cr = std::min(v_[at] >> later, 255) - 128;
      out[0] = static_cast<uint8_t>(Clamp((light + cr * weights.red_v) >> 6, 255));
      out[1] = static_cast<uint8_t>(Clamp((light - (cb * weights.green_u + cr * weights.green_v)) >> 6, 255));
      out[2] = static_cast<uint8_t>(Clamp((light + cb * weights.blue_u) >> 6, 255));
    }
  }

  void ConvertFloat(int y, uint8_t* out) {
    if (way_ != Way::kGrey) {
      Upsampler(image_, image_.u, y).Float(region_.left, uv_table_, &float_u_);
      Upsampler(image_, image_.v, y).Float(region_.left, uv_table_, &float_v_);
    }
    const Row luma(image_.y, image_.y_stride, y, image_.bits);
    const Shares shares = SharesOf(image_.colour);
    const float kr = shares.red, kb = shares.blue, kg = 1.0f - kr - kb;
    for (int i = 0; i < region_.width; ++i, out += 3) {
      const int sample = luma[region_.left + i];
      const float light = y_table_[static_cast<size_t>(sample)];
      const float cb = float_u_[static_cast<size_t>(i)], cr = float_v_[static_cast<size_t>(i)];
      float rgb[3] = {light, light, light};
      switch (way_) {
        case Way::kIdentity:
          rgb[0] = cr;
          rgb[2] = cb;
          break;
        case Way::kYCgCo: {
          const float rest = light - cb;
          rgb[0] = rest + cr;
          rgb[1] = light + cb;
          rgb[2] = rest - cr;
          break;
        }
        case Way::kYCgCoRe: {
          const auto highest = static_cast<float>((1 << image_.bits) - 1);
          const int green = static_cast<int>(std::floor(cb * highest + 0.5f)), orange = static_cast<int>(std::floor(cr * highest + 0.5f));
          const int rest = sample - (green >> 1), blue = Clamp(rest - (orange >> 1), 255);
          rgb[0] = static_cast<float>(Clamp(blue + orange, 255)) / 255.0f;
          rgb[1] = static_cast<float>(Clamp(rest + green, 255)) / 255.0f;
          rgb[2] = static_cast<float>(blue) / 255.0f;
          break;
        }
        case Way::kCoefficients:
          rgb[0] = light + (2 * (1 - kr)) * cr;
          rgb[1] = light - ((2 * ((kr * (1 - kr) * cr) + (kb * (1 - kb) * cb))) / kg);
          rgb[2] = light + (2 * (1 - kb)) * cb;
          break;
        default:
          break;
      }
      for (float& value : rgb) value = std::clamp(value, 0.0f, 1.0f);
      if (divides_in_float_) {
        const float alpha = static_cast<float>(AlphaAt(region_.left + i, y)) / static_cast<float>((1 << image_.bits) - 1);
        for (float& value : rgb) value = alpha == 0.0f ? 0.0f : alpha < 1.0f ? std::min(value / alpha, 1.0f) : value;
      }
      for (int c = 0; c < 3; ++c) out[c] = static_cast<uint8_t>(0.5f + rgb[c] * 255.0f);
    }
  }

  // Of all its bits.
  int AlphaAt(int x, int y) const { return Row(image_.alpha, image_.alpha_stride, y, image_.bits)[x]; }

  // libyuv's ARGBUnattenuate; on x86 its vectors make 0 of what is far too large.
  void Unpremultiply(int y, uint8_t* out) {
    const auto highest = static_cast<float>((1 << image_.bits) - 1);
    for (int i = 0; i < region_.width; ++i, out += 3) {
      int alpha = AlphaAt(region_.left + i, y);
      if (shifts_alpha_) {
        alpha >>= image_.bits - 8;
      } else if (image_.bits > 8) {
        alpha = static_cast<int>(0.5f + static_cast<float>(alpha) / highest * 255.0f);
      }
      const uint32_t inverse = alpha == 0 ? 0 : alpha == 1 ? 0xFFFF : alpha == 255 ? 256 : 0x10000 / static_cast<uint32_t>(alpha);
      for (int c = 0; c < 3; ++c) {
        const uint32_t value = out[c] * 257u * inverse >> 16;
        out[c] = static_cast<uint8_t>(value > 0x7FFF ? 0 : std::min(value, 255u));
      }
    }
  }

  const YuvImage& image_;
  const Way way_;
  const Rect region_;
  bool shifts_alpha_ = false;      // to 8 bits; else it is rounded
  bool divides_in_float_ = false;  // premultiplied alpha
  std::vector<int> u_, v_;
  std::vector<float> float_u_, float_v_, y_table_, uv_table_;
};

}  // namespace

absl::Status YuvToRgb(const YuvImage& image, const Rect& region, RgbImage* out) {
  const absl::StatusOr<Way> way = WayOf(image);
  if (!way.ok()) return way.status();
  out->Resize(region.width, region.height);
  Converter converter(image, *way, region);
  for (int row = 0; row < region.height; ++row) converter.Convert(row, out->row(row));
  return absl::OkStatus();
}

}  // namespace headrace
