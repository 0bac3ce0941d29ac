// Where in an AVIF file its picture lies: the boxes of ISO/IEC 14496-12 and 23008-12 as far as AVIF (AV1 Image File Format 1.1) uses
// them. Our own reader: which files are refused, and which of the properties count, is what libavif 1.4 does with Pillow's settings
// (src/read.c there; everything strict but `clap` and a missing `pixi`).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "core/base/status.h"

namespace headrace {

// AV1 data of one coded picture.
struct AvifTile {
  uint32_t width = 0, height = 0;                // px, as the container says
  std::vector<absl::Span<const uint8_t>> pieces;  // parts of the file, one after another
  int operating_point = 0;
  int layer = -1;  // the spatial layer that is shown; -1: what the decoder shows
};

// Colour or alpha: one tile, or a grid of them, row by row.
struct AvifPlanes {
  uint32_t columns = 0, rows = 0;  // 0: no grid
  uint32_t width = 0, height = 0;  // px
  std::vector<AvifTile> tiles;     // empty: there is no alpha
};

// Numbers of ITU-T H.273.
struct AvifColour {
  int primaries = 2, transfer = 2, matrix = 2;
  bool full_range = true;
  friend bool operator==(const AvifColour&, const AvifColour&) = default;
};

struct AvifPicture {
  uint32_t width = 0, height = 0;  // px, as the container says; a grid may have another size
  AvifPlanes colour, alpha;
  bool has_colour_property = false;  // else what the AV1 data say counts
  AvifColour property;
  bool monochrome = false;
  bool premultiplied = false;
  uint8_t orientation = 1;  // as Pillow's AvifImagePlugin.py makes it of irot, imir, EXIF and XMP
};

// A file that begins with an `ftyp` box of major brand avif or avis, or mif1 or msf1 and one of these among its brands.
bool IsAvif(absl::Span<const uint8_t> bytes);

// The primary item, or of a sequence the first picture. INVALID_ARGUMENT with a short reason. Looks at no AV1 data; allocates
// O(size of the file). `bytes` must outlive the result.
absl::StatusOr<AvifPicture> ParseAvif(absl::Span<const uint8_t> bytes);

}  // namespace headrace
