// Sizes and places that are no random choice: torchvision v2's arithmetic, to the last rounding.
#pragma once

#include <array>
#include <cstdint>

#include "core/augment/recipe.h"
#include "core/decode/image.h"

namespace headrace {

// Longest side of an image between two steps. Above it a sample is bad (Draw::error).
inline constexpr int64_t kMaxSidePx = int64_t{1} << 29;

// Height and width after `resize` of an image of `height` × `width` ≥ 1 px: torchvision's
// _compute_resized_output_size (v2/functional/_geometry.py): the longer side is truncated, not
// rounded. A side that would vanish is 1 px (torchvision raises there).
std::array<int64_t, 2> ResizedSize(const Resize& resize, int height, int width);

// CenterCrop as a rectangle of the image; reaches outside where the image is smaller (torchvision
// pads with 0 there).
Rect CenterCropRect(const CenterCrop& crop, int height, int width);

// Python's round(value / 2) for integers: halves to even.
int RoundHalf(int value);

}  // namespace headrace
