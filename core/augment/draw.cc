#include "core/augment/draw.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/augment/geometry.h"
#include "core/base/philox.h"

namespace headrace {
namespace {

constexpr int kTries = 10;
constexpr uint32_t kPlaceDraw =
    10;  // RandomResizedCrop: draws 0 … 9 are the tries, this one places the crop

// The random numbers of one transform of one sample.
class Numbers {
 public:
  Numbers(uint64_t seed, uint64_t epoch, uint64_t position, size_t transform)
      : seed_(seed),
        epoch_(static_cast<uint32_t>(epoch)),
        position_(position),
        use_(static_cast<uint32_t>(RandomUse::kTransformBase) +
             16 * static_cast<uint32_t>(transform)) {}

  std::array<uint32_t, 4> operator()(uint32_t draw) const {
    return Philox(seed_, epoch_, position_, use_ + draw);
  }

 private:
  uint64_t seed_;
  uint32_t epoch_;
  uint64_t position_;
  uint32_t use_;
};

// A uniform integer in [0, n]: ⌊x·(n + 1) / 2^64⌋, x of 64 bits. Its bias is below (n + 1) / 2^64.
int UniformInteger(uint32_t lo, uint32_t hi, int n) {
  const uint64_t x = static_cast<uint64_t>(hi) << 32 | lo;
  return static_cast<int>((static_cast<unsigned __int128>(x) * (static_cast<uint64_t>(n) + 1)) >>
                          64);
}

// Half-to-even, as Python's round(); the process never leaves the default rounding mode.
double Round(double value) { return std::nearbyint(value); }

// Walks the transforms: the size of the image so far, and the steps it has added.
class Drawer {
 public:
  Drawer(int height, int width, Draw* draw) : height_(height), width_(width), draw_(draw) {}

  void Add(const RandomResizedCrop& t, const Numbers& numbers) {
    const Rect rect = DrawResizedCrop(t, numbers);
    draw_->has_crop = true;
    draw_->crop = rect;
    AddCrop(rect, {0, 0, 0});
    AddResize(t.height, t.width, t.interpolation);
  }

  void Add(const Resize& t, const Numbers&) {
    const std::array<int64_t, 2> size = ResizedSize(t, height_, width_);
    if (std::max(size[0], size[1]) > kMaxSidePx) {
      draw_->error =
          absl::StrCat("Resize(", t.shorter_side, ") of an image of ", height_, " x ", width_,
                       " px would have a side of ", std::max(size[0], size[1]), " px");
      return;
    }
    AddResize(static_cast<int>(size[0]), static_cast<int>(size[1]), t.interpolation);
  }

  void Add(const CenterCrop& t, const Numbers&) {
    AddCrop(CenterCropRect(t, height_, width_), {0, 0, 0});
  }

  void Add(const RandomCrop& t, const Numbers& numbers) {
    auto [left, top, right, bottom] = t.padding;
    int padded_height = height_ + top + bottom;
    int padded_width = width_ + left + right;
    if (t.pad_if_needed) {  // on both sides, so that the crop's place in the padded image is random
                            // too
      const int missing_rows = std::max(t.height - padded_height, 0);
      const int missing_columns = std::max(t.width - padded_width, 0);
      top += missing_rows;
      left += missing_columns;
      padded_height += 2 * missing_rows;
      padded_width += 2 * missing_columns;
    }
    if (padded_height < t.height || padded_width < t.width) {
      draw_->error = absl::StrCat("RandomCrop of ", t.height, " x ", t.width,
                                  " px is larger than the image of ", height_, " x ", width_,
                                  " px: add padding or pad_if_needed");
      return;
    }
    const std::array<uint32_t, 4> r = numbers(0);
    const Rect rect = {UniformInteger(r[0], r[1], padded_height - t.height) - top,
                       UniformInteger(r[2], r[3], padded_width - t.width) - left, t.height,
                       t.width};
    draw_->has_crop = true;
    draw_->crop = rect;
    AddCrop(rect, t.fill);
  }

  void Add(const RandomHorizontalFlip& t, const Numbers& numbers) {
    const std::array<uint32_t, 4> r = numbers(0);
    draw_->has_flip = true;
    draw_->flip = UnitDouble(r[0], r[1]) < t.p;
    if (draw_->flip) draw_->steps.push_back(HorizontalFlipStep{});
  }

  void Add(const RandomVerticalFlip& t, const Numbers& numbers) {
    const std::array<uint32_t, 4> r = numbers(0);
    draw_->has_vflip = true;
    draw_->vflip = UnitDouble(r[0], r[1]) < t.p;
    if (draw_->vflip) draw_->steps.push_back(VerticalFlipStep{});
  }

 private:
  void AddCrop(const Rect& rect, std::array<uint8_t, 3> fill) {
    if (rect != Rect{0, 0, height_, width_}) draw_->steps.push_back(CropStep{rect, fill});
    height_ = rect.height;
    width_ = rect.width;
  }

  void AddResize(int height, int width, Interpolation interpolation) {
    if (height != height_ || width != width_)
      draw_->steps.push_back(ResizeStep{height, width, interpolation});
    height_ = height;
    width_ = width;
  }

  Rect DrawResizedCrop(const RandomResizedCrop& t, const Numbers& numbers) const {
    const double area = static_cast<double>(height_) * static_cast<double>(width_);
    const double log_min = std::log(t.ratio_min);
    const double log_max = std::log(t.ratio_max);
    for (int attempt = 0; attempt < kTries; ++attempt) {
      const std::array<uint32_t, 4> r = numbers(static_cast<uint32_t>(attempt));
      const double target =
          area * (t.scale_min + UnitDouble(r[0], r[1]) * (t.scale_max - t.scale_min));
      const double ratio = std::exp(log_min + UnitDouble(r[2], r[3]) * (log_max - log_min));
      const double width = Round(std::sqrt(target * ratio));
      const double height = Round(std::sqrt(target / ratio));
      if (width < 1 || width > width_ || height < 1 || height > height_) continue;
      const std::array<uint32_t, 4> place = numbers(kPlaceDraw);
      const int h = static_cast<int>(height);
      const int w = static_cast<int>(width);
      return {UniformInteger(place[0], place[1], height_ - h),
              UniformInteger(place[2], place[3], width_ - w), h, w};
    }
    return CentralCrop(t);
  }

  // torchvision's fallback: the largest central crop whose ratio is allowed. A side that would
  // vanish is 1 px.
  Rect CentralCrop(const RandomResizedCrop& t) const {
    const double ratio = static_cast<double>(width_) / static_cast<double>(height_);
    double height = height_;
    double width = width_;
    if (ratio < t.ratio_min) {
      height = std::clamp(Round(width / t.ratio_min), 1.0, height);
    } else if (ratio > t.ratio_max) {
      width = std::clamp(Round(height * t.ratio_max), 1.0, width);
    }
    const int h = static_cast<int>(height);
    const int w = static_cast<int>(width);
    return {(height_ - h) / 2, (width_ - w) / 2, h, w};
  }

  int height_, width_;  // of the image before the next transform
  Draw* draw_;
};

}  // namespace

void DrawSample(const Recipe& recipe, uint64_t seed, uint64_t epoch, uint64_t position, int width,
                int height, Draw* draw) {
  draw->steps.clear();
  draw->has_crop = draw->has_flip = draw->has_vflip = false;
  draw->flip = draw->vflip = false;
  draw->crop = Rect{};
  draw->error.clear();
  Drawer drawer(height, width, draw);
  for (size_t i = 0; i < recipe.transforms.size() && draw->error.empty(); ++i) {
    const Numbers numbers(seed, epoch, position, i);
    std::visit([&](const auto& transform) { drawer.Add(transform, numbers); },
               recipe.transforms[i]);
  }
}

}  // namespace headrace
