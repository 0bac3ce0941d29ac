// Plain pictures in memory and rectangles in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace headrace {

// A rectangle of pixels; torchvision's order of arguments.
struct Rect {
  int top = 0, left = 0, height = 0, width = 0;  // px
  friend bool operator==(const Rect&, const Rect&) = default;
};

// Interleaved 8-bit RGB, rows `width * 3` bytes apart. Grows when needed and keeps its memory, so that decoding
// allocates nothing in the steady state.
struct RgbImage {
  int width = 0, height = 0;  // px
  std::vector<uint8_t> pixels;

  void Resize(int new_width, int new_height) {
    width = new_width;
    height = new_height;
    const size_t bytes = size_t{3} * static_cast<size_t>(width) * static_cast<size_t>(height);
    if (pixels.size() < bytes + kPadding) pixels.resize(bytes + kPadding);
  }
  size_t stride() const { return size_t{3} * static_cast<size_t>(width); }
  uint8_t* row(int y) { return pixels.data() + stride() * static_cast<size_t>(y); }
  const uint8_t* row(int y) const { return pixels.data() + stride() * static_cast<size_t>(y); }

  // Readable bytes behind the last pixel, so that vector loads need no special last one.
  static constexpr size_t kPadding = 64;
};

// One row of pixels as three planes of bytes, red, green and blue, `stride` apart (0: grey, all three are one). Readable
// up to kRowPadding bytes behind each.
struct PlanarRow {
  const uint8_t* planes = nullptr;
  size_t stride = 0;
};
inline constexpr size_t kRowPadding = 64;

}  // namespace headrace
