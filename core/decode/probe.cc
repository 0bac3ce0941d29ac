#include "core/decode/probe.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "core/decode/avif/avif_decoder.h"
#include "core/decode/bmp/bmp_decoder.h"
#include "core/decode/gif/gif_decoder.h"
#include "core/decode/jpeg/jpeg_header.h"
#include "core/decode/png/png_header.h"
#include "core/decode/tiff/tiff_decoder.h"
#include "core/decode/webp/webp_decoder.h"

namespace headrace {
namespace {

bool IsJpeg(absl::Span<const uint8_t> bytes) {
  return bytes.size() >= 3 && bytes[0] == 0xFF && bytes[1] == 0xD8 && bytes[2] == 0xFF;
}

struct Kind {
  bool (*matches)(absl::Span<const uint8_t>);
  absl::StatusOr<ImageInfo> (*read_header)(absl::Span<const uint8_t>);
};
constexpr Kind kKinds[] = {
    {&IsJpeg, &ReadJpegHeader}, {&IsPng, &ReadPngHeader}, {&IsWebp, &ReadWebpHeader},
    {&IsGif, &ReadGifHeader},   {&IsBmp, &ReadBmpHeader}, {&IsTiff, &ReadTiffHeader},
    {&IsAvif, &ReadAvifHeader},
};

// Formats that are recognised only to be named when they are refused.
struct Magic {
  size_t offset;
  std::string_view bytes;
  const char* name;
};
using namespace std::string_view_literals;
constexpr Magic kOtherFormats[] = {
    {4, "ftypheic"sv, "HEIC"},
    {4, "ftypheix"sv, "HEIC"},
    {4, "ftyphevc"sv, "HEIC"},
    {4, "ftypmif1"sv, "HEIF"},
    {4, "ftypmsf1"sv, "HEIF"},
    {0, "\0\0\0\x0CjP  \r\n\x87\n"sv, "JPEG 2000"},
    {0, "\xFF\x4F\xFF\x51"sv, "JPEG 2000"},
    {0, "\xFF\x0A"sv, "JPEG XL"},
    {0, "\0\0\0\x0CJXL \r\n\x87\n"sv, "JPEG XL"},
    {0, "\0\0\x01\0"sv, "ICO"},
    {0, "8BPS"sv, "Photoshop"},
    {0, "%PDF-"sv, "PDF"},
    {0, "\0\x05\x16\x07"sv, "AppleDouble"},
};

bool Matches(absl::Span<const uint8_t> bytes, const Magic& magic) {
  return bytes.size() >= magic.offset + magic.bytes.size() &&
         std::memcmp(bytes.data() + magic.offset, magic.bytes.data(), magic.bytes.size()) == 0;
}

// Pnm: P1 … P7 and a blank.
bool IsPnm(absl::Span<const uint8_t> bytes) {
  return bytes.size() >= 3 && bytes[0] == 'P' && bytes[1] >= '1' && bytes[1] <= '7' &&
         (bytes[2] == '\n' || bytes[2] == ' ' || bytes[2] == '\r' || bytes[2] == '\t');
}

absl::Status NoImage(absl::Span<const uint8_t> bytes) {
  if (bytes.empty()) return absl::InvalidArgumentError("the file is empty");
  for (const Magic& magic : kOtherFormats) {
    if (Matches(bytes, magic)) {
      return absl::InvalidArgumentError(absl::StrCat(magic.name, " is not supported"));
    }
  }
  if (IsPnm(bytes)) return absl::InvalidArgumentError("PNM is not supported");
  std::string start;
  for (const uint8_t byte : bytes.subspan(0, 4)) {
    absl::StrAppend(&start, " 0x", absl::Hex(byte, absl::kZeroPad2));
  }
  return absl::InvalidArgumentError(absl::StrCat("no image: starts with", start));
}

}  // namespace

absl::StatusOr<ImageInfo> ProbeImage(absl::Span<const uint8_t> bytes, uint64_t max_pixels) {
  const auto kind = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& one) { return one.matches(bytes); });
  if (kind == std::end(kKinds)) return NoImage(bytes);
  HEADRACE_ASSIGN_OR_RETURN(const ImageInfo info, kind->read_header(bytes));
  if (uint64_t{info.width} * info.height > max_pixels) {
    return absl::InvalidArgumentError(
        absl::StrCat(info.width, " x ", info.height, " pixels are more than ", max_pixels));
  }
  return info;
}

}  // namespace headrace
