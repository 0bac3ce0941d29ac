#include "core/augment/geometry.h"

#include <algorithm>

namespace headrace {

int RoundHalf(int value) {
  const int floor = value >> 1;
  return (value & 1) != 0 && (floor & 1) != 0 ? floor + 1 : floor;
}

std::array<int64_t, 2> ResizedSize(const Resize& resize, int height, int width) {
  if (resize.shorter_side == 0) return {resize.height, resize.width};
  const int64_t shorter = std::min(height, width);
  const int64_t longer = std::max(height, width);
  // Python divides integers to the nearest double before it truncates; below 2^53 the operands are
  // exact, so this does too.
  int64_t new_shorter = resize.shorter_side;
  int64_t new_longer = static_cast<int64_t>(static_cast<double>(new_shorter * longer) /
                                            static_cast<double>(shorter));
  if (resize.max_size > 0 && new_longer > resize.max_size) {
    new_shorter = static_cast<int64_t>(static_cast<double>(resize.max_size * new_shorter) /
                                       static_cast<double>(new_longer));
    new_longer = resize.max_size;
  }
  new_shorter = std::max<int64_t>(new_shorter, 1);
  if (width <= height) return {new_longer, new_shorter};
  return {new_shorter, new_longer};
}

namespace {

// Offset of the crop along one axis; negative where the image is padded.
int CenterOffset(int crop, int size) {
  return crop > size ? -((crop - size) / 2) : RoundHalf(size - crop);
}

}  // namespace

Rect CenterCropRect(const CenterCrop& crop, int height, int width) {
  return {CenterOffset(crop.height, height), CenterOffset(crop.width, width), crop.height,
          crop.width};
}

}  // namespace headrace
