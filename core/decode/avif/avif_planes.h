// The planes of an AV1 picture, of a scaled one or of a grid of them, as libavif 1.4 puts them together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/status.h"
#include "core/decode/avif/avif_container.h"
#include "core/decode/avif/yuv_to_rgb.h"

namespace headrace {

// Samples of one byte up to 8 bits, else of two. Planes that are missing are null: chroma of grey and of alpha.
struct Planes {
  int width = 0, height = 0, bits = 8;
  Chroma chroma = Chroma::k420;
  AvifColour colour;  // as the AV1 data say
  const uint8_t* data[3] = {};
  ptrdiff_t strides[3] = {};  // bytes

  bool HalvesColumns(int plane) const { return plane > 0 && chroma != Chroma::k444; }
  bool HalvesRows(int plane) const { return plane > 0 && chroma == Chroma::k420; }
  int Width(int plane) const { return HalvesColumns(plane) ? (width + 1) / 2 : width; }
  int Height(int plane) const { return HalvesRows(plane) ? (height + 1) / 2 : height; }
};

// Planes like these, but of another size, without gaps in `memory`, which grows.
Planes LayOut(const Planes& like, uint32_t width, uint32_t height, std::vector<uint8_t>* memory);

// Alpha of limited range, made full.
Planes FullRange(const Planes& alpha, std::vector<uint8_t>* memory);

// Each plane scaled (scale_plane.h), if the picture has another size. INVALID_ARGUMENT above libavif's limit.
absl::StatusOr<Planes> Scale(const Planes& planes, uint32_t width, uint32_t height, std::vector<uint8_t>* memory);

// Writes a tile into `memory`, where LayOut put the planes of `whole`.
void CopyTile(const Planes& tile, int column, int row, const Planes& whole, uint8_t* memory);

}  // namespace headrace
