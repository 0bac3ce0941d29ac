#include "core/decode/avif/scale_plane.h"

#include <algorithm>
#include <vector>

namespace headrace {
namespace {

enum class Filter { kNone, kLinear, kBilinear, kBox };  // kLinear: along rows only

// libyuv takes a box only where both axes shrink to less than half, and leaves interpolation out where it finds it needless.
Filter FilterOf(int from_width, int from_height, int width, int height) {
  if (from_width == 1) return Filter::kNone;
  if (width * 2 < from_width && height * 2 < from_height) return Filter::kBox;
  if (from_height != 1 && height != from_height && height * 3 != from_height) return Filter::kBilinear;
  return width == from_width || width * 3 == from_width ? Filter::kNone : Filter::kLinear;
}

// Where the samples of one axis lie, in 1/65536 of a sample of the source.
struct Steps {
  int start = 0, step = 0;
};

int Ratio(int from, int to) { return static_cast<int>((int64_t{from} << 16) / to); }

// Interpolating: shrinking, the centres of samples; growing, first and last sample stay in their places.
Steps Interpolated(int from, int to) {
  if (to <= from) return {(Ratio(from, to) >> 1) - 32768, Ratio(from, to)};
  return {0, static_cast<int>(((int64_t{from} << 16) - 0x10001) / (to - 1))};
}
Steps Nearest(int from, int to) { return {Ratio(from, to) >> 1, Ratio(from, to)}; }

template <typename Sample>
class Scaler {
 public:
  static constexpr bool kBytes = sizeof(Sample) == 1;

  Scaler(const PlaneView& from, int width, int height, Sample* to) : from_(from), width_(width), height_(height), to_(to) {}

  void Scale() {
    const int from_width = from_.width, from_height = from_.height;
    const auto is_ratio = [&](int64_t to, int64_t of) {
      return of * width_ == to * from_width && of * height_ == to * from_height;
    };
    const bool doubles = (width_ + 1) / 2 == from_width, doubles_rows = (height_ + 1) / 2 == from_height;
    const Filter filter = FilterOf(from_width, from_height, width_, height_);
    if (width_ == from_width) return ScaleRows(filter);
    if (is_ratio(3, 4)) return ScaleTo34();
    if (is_ratio(1, 2)) return ScaleByBoxes(2);
    if (is_ratio(3, 8)) return ScaleTo38();
    if (is_ratio(1, 4)) return ScaleByBoxes(4);
    if (filter == Filter::kBox) return ScaleByAnyBoxes();
    if (doubles && filter == Filter::kLinear) return DoubleColumns();
    if (doubles && doubles_rows && filter == Filter::kBilinear) return DoubleBoth();
    if (filter == Filter::kNone) return TakeNearest();
    if (height_ > from_height) return ScaleUp();
    ScaleDown(filter);
  }

 private:
  const Sample* Row(int y) const { return reinterpret_cast<const Sample*>(from_.data + from_.stride * y); }
  Sample* Out(int y) const { return to_ + ptrdiff_t{y} * width_; }

  // Between two rows, `part` in 1/256.
  static void Blend(const Sample* upper, const Sample* lower, int part, int count, Sample* out) {
    if (part == 0) {
      std::copy_n(upper, count, out);
      return;
    }
    for (int x = 0; x < count; ++x) out[x] = static_cast<Sample>((upper[x] * (256 - part) + lower[x] * part + 128) >> 8);
  }

  // Along a row. Bytes are weighted in 1/128.
  void Interpolate(const Sample* row, Sample* out) const {
    const auto [start, step] = Interpolated(from_.width, width_);
    for (int i = 0, x = start; i < width_; ++i, x += step) {
      const int at = x >> 16, part = x & 0xFFFF;
      const int a = row[at], b = row[std::min(at + 1, from_.width - 1)];
      out[i] = static_cast<Sample>(kBytes ? a + (((part >> 9) * (b - a) + 64) >> 7)
                                          : a + static_cast<int>((int64_t{part} * (b - a) + 0x8000) >> 16));
    }
  }

  void ScaleRows(Filter filter) const {
    if (height_ == from_.height) {
      for (int y = 0; y < height_; ++y) std::copy_n(Row(y), width_, Out(y));
      return;
    }
    const int last = from_.height > 1 ? ((from_.height - 1) << 16) - 1 : 0;
    Steps steps;
    if (height_ <= from_.height || from_.height > 1) steps = Interpolated(from_.height, height_);
    for (int i = 0, y = steps.start; i < height_; ++i, y += steps.step) {
      y = std::min(y, last);
      const int at = y >> 16;
      Blend(Row(at), Row(std::min(at + 1, from_.height - 1)), filter == Filter::kNone ? 0 : y >> 8 & 255, width_, Out(i));
    }
  }

  // A row of 3/4. Rows are weighted 3:1, or 1:1 where `even`.
  void Row34(const Sample* near, const Sample* far, bool even, Sample* out) const {
    // libyuv's vectors make 24 samples at once and blend rows first, rounding up; what is left, and 16 bits, go the other way.
    const int vectors = kBytes ? width_ / 24 * 24 : 0;
    const auto columns = [](int a, int b, int c, int d, int* three) {
      three[0] = (a * 3 + b + 2) >> 2;
      three[1] = (b + c + 1) >> 1;
      three[2] = (c + d * 3 + 2) >> 2;
    };
    for (int x = 0; x < width_; x += 3, near += 4, far += 4) {
      int upper[3], lower[3];
      if (x < vectors) {
        int rows[4];
        for (int i = 0; i < 4; ++i) {
          rows[i] = (near[i] + far[i] + 1) >> 1;
          if (!even) rows[i] = (near[i] + rows[i] + 1) >> 1;
        }
        columns(rows[0], rows[1], rows[2], rows[3], upper);
        for (int i = 0; i < 3; ++i) out[x + i] = static_cast<Sample>(upper[i]);
        continue;
      }
      columns(near[0], near[1], near[2], near[3], upper);
      columns(far[0], far[1], far[2], far[3], lower);
      for (int i = 0; i < 3; ++i) {
        out[x + i] = static_cast<Sample>(even ? (upper[i] + lower[i] + 1) >> 1 : (upper[i] * 3 + lower[i] + 2) >> 2);
      }
    }
  }

  // Both sides are multiples of 3, as those of the source are of 4.
  void ScaleTo34() const {
    for (int y = 0, at = 0; y < height_; y += 3, at += 4) {
      Row34(Row(at), Row(at + 1), false, Out(y));
      Row34(Row(at + 1), Row(at + 2), true, Out(y + 1));
      Row34(Row(at + 3), Row(at + 2), false, Out(y + 2));
    }
  }

  // 3 of 8 columns, of 3 or 2 rows.
  void Row38(int at, int rows, Sample* out) const {
    const int vectors = kBytes && rows == 2 ? width_ / 6 * 6 : 0;
    for (int x = 0, left = 0; x < width_; x += 3, left += 8) {
      for (int i = 0; i < 3; ++i) {
        const int columns = i == 2 ? 2 : 3;
        int sum = 0;
        for (int column = left + 3 * i; column < left + 3 * i + columns; ++column) {
          // Vectors take the mean of two rows first, rounded up.
          if (x / 6 * 6 < vectors) {
            sum += (Row(at)[column] + Row(at + 1)[column] + 1) >> 1;
          } else {
            for (int row = 0; row < rows; ++row) sum += Row(at + row)[column];
          }
        }
        out[x + i] = static_cast<Sample>(sum * (65536 / (columns * (x / 6 * 6 < vectors ? 1 : rows))) >> 16);
      }
    }
  }

  void ScaleTo38() const {
    for (int y = 0, at = 0; y < height_; y += 3, at += 8) {
      Row38(at, 3, Out(y));
      Row38(at + 3, 3, Out(y + 1));
      Row38(at + 6, 2, Out(y + 2));
    }
  }

  // The mean of 2 x 2 or 4 x 4 samples, rounded.
  void ScaleByBoxes(int side) const {
    for (int y = 0; y < height_; ++y) {
      for (int x = 0; x < width_; ++x) {
        int sum = side * side / 2;
        for (int row = 0; row < side; ++row) {
          const Sample* from = Row(y * side + row) + x * side;
          for (int column = 0; column < side; ++column) sum += from[column];
        }
        Out(y)[x] = static_cast<Sample>(sum / (side * side));
      }
    }
  }

  // Boxes of whole samples. The mean is rounded down, of a reciprocal in 1/65536 that is rounded down too.
  void ScaleByAnyBoxes() const {
    std::vector<uint32_t> sums(static_cast<size_t>(from_.width));
    // Sums of bytes are 16 bits wide: vectors of 32 columns saturate, the columns behind them wrap.
    const int vectors = from_.width / 32 * 32;
    const int last = from_.height << 16, row_step = Ratio(from_.height, height_), step = Ratio(from_.width, width_);
    for (int i = 0, y = 0; i < height_; ++i) {
      const int top = y >> 16;
      y = std::min(y + row_step, last);
      const int rows = std::max((y >> 16) - top, 1);
      std::fill(sums.begin(), sums.end(), 0);
      for (int row = top; row < top + rows; ++row) {
        const Sample* from = Row(row);
        for (int x = 0; x < from_.width; ++x) sums[static_cast<size_t>(x)] += from[x];
      }
      for (int x = 0; kBytes && rows > 257 && x < from_.width; ++x) {
        uint32_t& sum = sums[static_cast<size_t>(x)];
        sum = x < vectors ? std::min(sum, 0xFFFFu) : sum & 0xFFFF;
      }
      const bool is_whole = (step & 0xFFFF) == 0;
      for (int k = 0, x = 0; k < width_; ++k, x += step) {
        const int left = x >> 16, columns = is_whole ? step >> 16 : ((x + step) >> 16) - left;
        uint32_t sum = 0;
        for (int column = left; column < left + columns; ++column) sum += sums[static_cast<size_t>(column)];
        Out(i)[k] = static_cast<Sample>(sum * static_cast<uint32_t>(65536 / (columns * rows)) >> 16);
      }
    }
  }

  // To twice as many, 3:1 along each axis; the samples at the edges have no neighbour.
  struct Pair {
    int near, far;
  };
  static Pair Neighbours(int at, int size) {
    const int near = at / 2;
    return {near, at == 0 || at == size - 1 ? near : at % 2 != 0 ? near + 1 : near - 1};
  }

  void DoubleColumns() const {
    const int step = height_ == 1 ? 0 : Ratio(from_.height - 1, height_ - 1);
    for (int i = 0, y = 32767; i < height_; ++i, y += step) {
      const Sample* from = Row(height_ == 1 ? (from_.height - 1) / 2 : y >> 16);
      for (int x = 0; x < width_; ++x) {
        const auto [near, far] = Neighbours(x, width_);
        Out(i)[x] = static_cast<Sample>((from[near] * 3 + from[far] + 2) >> 2);
      }
    }
  }

  void DoubleBoth() const {
    for (int y = 0; y < height_; ++y) {
      const int nearest = y / 2, other = y % 2 != 0 ? std::min(nearest + 1, from_.height - 1) : std::max(nearest - 1, 0);
      const Sample *rows[2] = {Row(nearest), Row(other)};
      for (int x = 0; x < width_; ++x) {
        const auto [near, far] = Neighbours(x, width_);
        const int sum = 9 * rows[0][near] + 3 * rows[0][far] + 3 * rows[1][near] + rows[1][far];
        Out(y)[x] = static_cast<Sample>((sum + 8) >> 4);
      }
    }
  }

  void TakeNearest() const {
    const Steps rows = Nearest(from_.height, height_), columns = Nearest(from_.width, width_);
    for (int i = 0, y = rows.start; i < height_; ++i, y += rows.step) {
      const Sample* from = Row(y >> 16);
      for (int k = 0, x = columns.start; k < width_; ++k, x += columns.step) Out(i)[k] = from[x >> 16];
    }
  }

  // First along rows, then between them.
  void ScaleUp() const {
    std::vector<Sample> upper(static_cast<size_t>(width_)), lower(upper);
    Interpolate(Row(0), upper.data());
    if (from_.height == 1) {
      for (int y = 0; y < height_; ++y) std::copy(upper.begin(), upper.end(), Out(y));
      return;
    }
    Interpolate(Row(1), lower.data());
    const Steps steps = Interpolated(from_.height, height_);
    for (int i = 0, y = steps.start, before = 0; i < height_; ++i, y += steps.step) {
      if (y >> 16 != before) {
        before = y >> 16;
        upper.swap(lower);
        Interpolate(Row(std::min(before + 1, from_.height - 1)), lower.data());
      }
      Blend(upper.data(), lower.data(), y >> 8 & 255, width_, Out(i));
    }
  }

  // First between rows, then along them.
  void ScaleDown(Filter filter) const {
    std::vector<Sample> blended(static_cast<size_t>(from_.width));
    const int last = (from_.height - 1) << 16;
    const Steps steps = filter == Filter::kLinear ? Nearest(from_.height, height_) : Interpolated(from_.height, height_);
    for (int i = 0, y = steps.start; i < height_; ++i, y += steps.step) {
      y = std::min(y, last);
      const int at = y >> 16, part = filter == Filter::kLinear ? 0 : y >> 8 & 255;
      Blend(Row(at), Row(std::min(at + 1, from_.height - 1)), part, from_.width, blended.data());
      Interpolate(blended.data(), Out(i));
    }
  }

  const PlaneView from_;
  const int width_, height_;
  Sample* const to_;
};

}  // namespace

void ScalePlane8(const PlaneView& from, int width, int height, uint8_t* to) { Scaler<uint8_t>(from, width, height, to).Scale(); }
void ScalePlane16(const PlaneView& from, int width, int height, uint16_t* to) { Scaler<uint16_t>(from, width, height, to).Scale(); }

}  // namespace headrace
