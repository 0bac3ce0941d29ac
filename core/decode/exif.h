// Orientation in metadata, by the rules of Pillow 13 (Image.getexif, ImageOps.exif_transpose). The
// input is hostile.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace headrace {

// 1 … 8 from the first directory of an EXIF block (`Exif\0\0` in front or not); 0 when the tag is
// not there, and then Pillow looks into XMP. 1 when the block is no TIFF or the value is nothing
// that exif_transpose acts on: other numbers, text, bytes. The first of several values counts; a
// real number counts if it is whole. Source: ImageFileDirectory_v2.load in Pillow's
// TiffImagePlugin.py.
int ExifOrientation(absl::Span<const uint8_t> block);

// 1 … 8 from the first `tiff:Orientation="N` or `tiff:Orientation>N` in an XMP packet; 1 when there
// is none.
int XmpOrientation(absl::Span<const uint8_t> packet);

}  // namespace headrace
