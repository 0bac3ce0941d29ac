#include "core/decode/avif/avif_planes.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/decode/avif/scale_plane.h"

namespace headrace {
namespace {

constexpr int kMaxScaledSide = 16384;  // libavif's, before scaling

int SampleBytes(const Planes& planes) { return planes.bits > 8 ? 2 : 1; }

}  // namespace

Planes LayOut(const Planes& like, uint32_t width, uint32_t height, std::vector<uint8_t>* memory) {
  Planes whole = like;
  whole.width = static_cast<int>(width);
  whole.height = static_cast<int>(height);
  size_t starts[3] = {}, total = 0;
  for (int plane = 0; plane < 3 && like.data[plane] != nullptr; ++plane) {
    starts[plane] = total;
    whole.strides[plane] = ptrdiff_t{whole.Width(plane)} * SampleBytes(like);
    total += static_cast<size_t>(whole.strides[plane]) * static_cast<size_t>(whole.Height(plane));
  }
  if (memory->size() < total) memory->resize(total);
  for (int plane = 0; plane < 3 && like.data[plane] != nullptr; ++plane) whole.data[plane] = memory->data() + starts[plane];
  return whole;
}

Planes FullRange(const Planes& alpha, std::vector<uint8_t>* memory) {
  const Planes full = LayOut(alpha, static_cast<uint32_t>(alpha.width), static_cast<uint32_t>(alpha.height), memory);
  const int scale = 1 << (alpha.bits - 8), low = 16 * scale, range = 219 * scale, highest = (1 << alpha.bits) - 1;
  const auto convert = [&](const auto* from, auto* to) {
    for (int x = 0; x < alpha.width; ++x) {
      const int value = ((from[x] - low) * highest + range / 2) / range;
      to[x] = static_cast<std::remove_reference_t<decltype(*to)>>(std::clamp(value, 0, highest));
    }
  };
  for (int y = 0; y < alpha.height; ++y) {
    const uint8_t* from = alpha.data[0] + y * alpha.strides[0];
    uint8_t* to = memory->data() + y * full.strides[0];
    if (alpha.bits == 8) {
      convert(from, to);
    } else {
      convert(reinterpret_cast<const uint16_t*>(from), reinterpret_cast<uint16_t*>(to));
    }
  }
  return full;
}

absl::StatusOr<Planes> Scale(const Planes& planes, uint32_t width, uint32_t height, std::vector<uint8_t>* memory) {
  if (static_cast<uint32_t>(planes.width) == width && static_cast<uint32_t>(planes.height) == height) return planes;
  if (planes.width > kMaxScaledSide || planes.height > kMaxScaledSide) {
    return absl::InvalidArgumentError(absl::StrCat("AVIF: ", planes.width, " x ", planes.height, " pixels are too many to be scaled"));
  }
  const Planes scaled = LayOut(planes, width, height, memory);
  for (int plane = 0; plane < 3 && planes.data[plane] != nullptr; ++plane) {
    const PlaneView from = {planes.data[plane], planes.strides[plane], planes.Width(plane), planes.Height(plane)};
    uint8_t* const to = memory->data() + (scaled.data[plane] - scaled.data[0]);
    if (planes.bits == 8) {
      ScalePlane8(from, scaled.Width(plane), scaled.Height(plane), to);
    } else {
      ScalePlane16(from, scaled.Width(plane), scaled.Height(plane), reinterpret_cast<uint16_t*>(to));
    }
  }
  return scaled;
}

void CopyTile(const Planes& tile, int column, int row, const Planes& whole, uint8_t* memory) {
  for (int plane = 0; plane < 3 && tile.data[plane] != nullptr; ++plane) {
    const int left = tile.Width(plane) * column, top = tile.Height(plane) * row;
    const int width = std::min(tile.Width(plane), whole.Width(plane) - left);
    const int height = std::min(tile.Height(plane), whole.Height(plane) - top);
    uint8_t* const to = memory + (whole.data[plane] - whole.data[0]) + ptrdiff_t{left} * SampleBytes(tile);
    for (int y = 0; y < height; ++y) {
      std::memcpy(to + (top + y) * whole.strides[plane], tile.data[plane] + y * tile.strides[plane],
                  static_cast<size_t>(width) * static_cast<size_t>(SampleBytes(tile)));
    }
  }
}

}  // namespace headrace
