// Parts of images, and what a decoder made of them.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "core/decode/image.h"

namespace headrace::testing {

inline Rect RandomRegion(std::mt19937* random, int width, int height) {
  const auto below = [&](int bound) { return static_cast<int>((*random)() % static_cast<unsigned>(bound)); };
  Rect region;
  region.width = 1 + below(width);
  region.height = 1 + below(height);
  region.left = below(width - region.width + 1);
  region.top = below(height - region.height + 1);
  return region;
}

inline std::vector<uint8_t> PixelsOf(const RgbImage& image) {
  return {image.row(0), image.row(0) + image.stride() * static_cast<size_t>(image.height)};
}

}  // namespace headrace::testing
