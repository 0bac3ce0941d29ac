#include <algorithm>
#include <cstring>

#include "core/decode/image_decoder.h"

namespace headrace {
namespace {

constexpr Turn kTurns[9] = {
    {false, false, false},  // not used
    {false, false, false},  // 1
    {false, true, false},   // 2: FLIP_LEFT_RIGHT
    {true, true, false},    // 3: ROTATE_180
    {true, false, false},   // 4: FLIP_TOP_BOTTOM
    {false, false, true},   // 5: TRANSPOSE
    {true, false, true},    // 6: ROTATE_270
    {true, true, true},     // 7: TRANSVERSE
    {false, true, true},    // 8: ROTATE_90
};

// `count` pixels that lie `step` bytes apart, one behind the other at `to`. Moves four bytes at a
// time, the fourth of which the next pixel overwrites; reading it is allowed by RgbImage::kPadding.
void GatherPixels(const uint8_t* from, ptrdiff_t step, int count, uint8_t* to) {
  for (int i = 1; i < count; ++i, from += step, to += 3) std::memcpy(to, from, 4);
  std::memcpy(to, from, 3);
}

// Row y of the result from row (flipped) y of the input.
void CopyRows(const RgbImage& in, Turn turn, RgbImage* out) {
  for (int y = 0; y < in.height; ++y) {
    const uint8_t* from = in.row(turn.flip_rows ? in.height - 1 - y : y);
    uint8_t* to = out->row(y);
    if (!turn.flip_columns) {
      std::memcpy(to, from, in.stride());
      continue;
    }
    GatherPixels(from + in.stride() - 3, -3, in.width, to);
  }
}

// Blocks of 32 × 32 pixels, so that both pictures' lines stay in the first-level cache.
void Transpose(const RgbImage& in, Turn turn, RgbImage* out) {
  constexpr int kBlock = 32;
  const ptrdiff_t step =
      turn.flip_rows ? -static_cast<ptrdiff_t>(in.stride()) : static_cast<ptrdiff_t>(in.stride());
  for (int block_y = 0; block_y < out->height; block_y += kBlock) {
    const int end_y = std::min(block_y + kBlock, out->height);
    for (int block_x = 0; block_x < out->width; block_x += kBlock) {
      const int count = std::min(kBlock, out->width - block_x);
      for (int y = block_y; y < end_y; ++y) {
        // Row y of the result is a column of the input.
        const int column = turn.flip_columns ? in.width - 1 - y : y;
        const uint8_t* from =
            in.row(turn.flip_rows ? in.height - 1 - block_x : block_x) + size_t{3} * column;
        GatherPixels(from, step, count, out->row(y) + size_t{3} * block_x);
      }
    }
  }
}

}  // namespace

Turn TurnOf(int orientation) {
  return kTurns[orientation >= 1 && orientation <= 8 ? orientation : 1];
}

void ApplyOrientation(const RgbImage& in, int orientation, RgbImage* out) {
  const Turn turn = TurnOf(orientation);
  if (turn.transpose) {
    out->Resize(in.height, in.width);
    Transpose(in, turn, out);
  } else {
    out->Resize(in.width, in.height);
    CopyRows(in, turn, out);
  }
}

Rect StoredRegion(const Rect& oriented, const ImageInfo& info) {
  const Turn turn = TurnOf(info.orientation);
  Rect stored = oriented;
  if (turn.transpose) stored = {oriented.left, oriented.top, oriented.width, oriented.height};
  if (turn.flip_rows) stored.top = static_cast<int>(info.height) - stored.top - stored.height;
  if (turn.flip_columns) stored.left = static_cast<int>(info.width) - stored.left - stored.width;
  return stored;
}

}  // namespace headrace
