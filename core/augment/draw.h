// From a recipe and a position to concrete steps: every random choice is made here, before any
// pixel is touched.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "core/augment/recipe.h"
#include "core/decode/image.h"

namespace headrace {

// Concrete steps on an image, in order. A crop may reach outside the image: `fill` is found there.
struct CropStep {
  Rect rect;
  std::array<uint8_t, 3> fill = {0, 0, 0};
};
struct ResizeStep {
  int height = 0, width = 0;
  Interpolation interpolation = Interpolation::kBilinear;
};
struct HorizontalFlipStep {};
struct VerticalFlipStep {};
using Step = std::variant<CropStep, ResizeStep, HorizontalFlipStep, VerticalFlipStep>;

// What was drawn for one sample; what `audit` prints. `steps` starts at the oriented image.
struct Draw {
  std::vector<Step> steps;
  // For audit, torchvision's words: RandomResizedCrop / RandomCrop → crop; flips → flip, vflip.
  // Absent when not drawn.
  bool has_crop = false, has_flip = false, has_vflip = false;
  // With several of a kind the last one counts.
  Rect crop;  // in coordinates of the image that the transform saw (the oriented image when it
              // comes first)
  bool flip = false, vflip = false;
  // Not empty: this image does not fit the recipe (torchvision raises); the reason. Render returns
  // it as INVALID_ARGUMENT.
  std::string error;
};

// A pure function of its arguments (docs/order.md, "Draws"), after torchvision v2's make_params
// (torchvision/transforms/v2/_geometry.py). `width` × `height` ≥ 1: the oriented image. Reuses the
// memory of `draw`.
void DrawSample(const Recipe& recipe, uint64_t seed, uint64_t epoch, uint64_t position, int width,
                int height, Draw* draw);

}  // namespace headrace
