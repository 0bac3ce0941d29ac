// The chunks of a PNG file (ISO/IEC 15948), read without decoding pixels.
#pragma once

#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "core/shard/dataset.h"

namespace headrace {

inline constexpr uint8_t kPngSignature[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};

// True if `bytes` start with the signature of PNG.
bool IsPng(absl::Span<const uint8_t> bytes);

inline constexpr char kPngCutOff[] = "the file is cut off";

// Big-endian, as all numbers of this format.
inline uint32_t PngNumber(const uint8_t* p) { return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | p[3]; }

// INVALID_ARGUMENT, as all errors of this format.
absl::Status InvalidPng(const std::string& reason);

struct PngChunk {
  std::string_view type;
  absl::Span<const uint8_t> body;   // where the file is cut off: what there is of it
  absl::Span<const uint8_t> bytes;  // from its length to its checksum
  bool is_whole = false;
  bool HasRightChecksum() const;  // of a whole one
};
// Takes the next one off. False when less than its length and type is left.
bool TakePngChunk(absl::Span<const uint8_t>* bytes, PngChunk* chunk);

struct PngIhdr {
  uint32_t width = 0, height = 0;  // 1 … 2^31 - 1
  uint8_t bits = 0, colour_type = 0, channels = 0;  // a palette counts as 3
  bool interlaced = false;
};
// As Pillow reads it: what follows its 13 bytes, the compression method and which interlacing do not matter.
absl::StatusOr<PngIhdr> ReadIhdr(const PngChunk& chunk);

// Size, channels (a palette counts as 3) and orientation of `bytes`, which start with the
// signature. Of several IHDR in front of the image data the last counts. The orientation is looked for where Pillow 13 finds it: eXIf (also behind the image
// data), ImageMagick's `Raw profile type exif` text, then XMP; compressed text is inflated up to 1
// MiB. INVALID_ARGUMENT with a short reason for a broken IHDR.
absl::StatusOr<ImageInfo> ReadPngHeader(absl::Span<const uint8_t> bytes);

}  // namespace headrace
