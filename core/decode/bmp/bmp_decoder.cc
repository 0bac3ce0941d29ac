#include "core/decode/bmp/bmp_decoder.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

namespace headrace {
namespace {

constexpr uint64_t kFileHeaderBytes = 14;
enum Compression : uint32_t { kRaw = 0, kRle8 = 1, kRle4 = 2, kBitFields = 3 };
enum class Pixels { kPalette, kGrey, kBlackWhite, kBytes, k555, k565 };

absl::Status Invalid(const std::string& reason) { return absl::InvalidArgumentError(absl::StrCat("BMP: ", reason)); }
absl::Status CutOff() { return Invalid("the file is cut off"); }

uint32_t U16(const uint8_t* p) { return p[0] | uint32_t{p[1]} << 8; }
uint32_t U32(const uint8_t* p) { return U16(p) | U16(p + 2) << 16; }

struct Bmp {
  uint32_t width = 0, height = 0;
  bool top_down = false;
  uint32_t bits = 0, compression = kRaw;
  Pixels pixels = Pixels::kPalette;
  uint8_t red = 2, green = 1, blue = 0;  // kBytes: where they lie in a pixel
  uint8_t palette[256][3] = {};
  uint64_t data = 0;  // offset in the file

  // The bits that a pixel has in the data: a palette that is not looked at takes its bits with it.
  uint32_t data_bits() const {
    return pixels == Pixels::kGrey ? 8 : pixels == Pixels::kBlackWhite ? 1 : bits;
  }
  bool has_runs() const { return compression == kRle8 || compression == kRle4; }
  uint64_t stride() const { return (uint64_t{width} * bits + 31) / 32 * 4; }
  uint64_t row_bytes() const { return (uint64_t{width} * data_bits() + 7) / 8; }
};

// The masks of 16 and 32 bits that Pillow knows.
absl::Status ReadMasks(const uint8_t* masks, bool has_alpha, Bmp* bmp) {
  struct Known {
    uint32_t red, green, blue, alpha;
    uint8_t red_at, green_at, blue_at;
  };
  static constexpr Known kKnown[] = {
      {0xFF0000, 0xFF00, 0xFF, 0, 2, 1, 0},          {0xFF000000, 0xFF0000, 0xFF00, 0, 3, 2, 1},
      {0xFF000000, 0xFF00, 0xFF, 0, 3, 1, 0},        {0xFF000000, 0xFF0000, 0xFF00, 0xFF, 3, 2, 1},
      {0xFF, 0xFF00, 0xFF0000, 0xFF000000, 0, 1, 2}, {0xFF0000, 0xFF00, 0xFF, 0xFF000000, 2, 1, 0},
      {0xFF000000, 0xFF00, 0xFF, 0xFF0000, 3, 1, 0}, {0, 0, 0, 0, 2, 1, 0},
  };
  const uint32_t red = U32(masks), green = U32(masks + 4), blue = U32(masks + 8);
  const uint32_t alpha = has_alpha ? U32(masks + 12) : 0;
  if (bmp->bits == 16 && green == 0x7E0 && red == 0xF800 && blue == 0x1F) {
    bmp->pixels = Pixels::k565;
    return absl::OkStatus();
  }
  if (bmp->bits == 16 && green == 0x3E0 && red == 0x7C00 && blue == 0x1F) return absl::OkStatus();
  if (bmp->bits == 24 && red == 0xFF0000 && green == 0xFF00 && blue == 0xFF) return absl::OkStatus();
  for (const Known& known : kKnown) {
    if (bmp->bits != 32 || red != known.red || green != known.green || blue != known.blue || alpha != known.alpha) continue;
    bmp->red = known.red_at;
    bmp->green = known.green_at;
    bmp->blue = known.blue_at;
    return absl::OkStatus();
  }
  return Invalid("bit masks that are not supported");
}

// `colours`: how many the header says; `entry_bytes`: of one. Sets the kind of pixels.
absl::Status ReadPalette(absl::Span<const uint8_t> entries, uint64_t colours, uint64_t entry_bytes, Bmp* bmp) {
  const auto is_grey = [&](uint64_t i) {
    const auto value = static_cast<uint8_t>(colours == 2 ? 255 * i : i);
    const size_t at = i * entry_bytes;
    return at + 3 <= entries.size() && entries[at] == value && entries[at + 1] == value && entries[at + 2] == value;
  };
  bool grey = true;
  for (uint64_t i = 0; grey && i < colours; ++i) grey = is_grey(i);
  if (grey) {
    bmp->pixels = colours <= 2 ? Pixels::kBlackWhite : Pixels::kGrey;
    return absl::OkStatus();
  }
  const size_t count = entries.size() / entry_bytes;
  if (count > 256) return Invalid("a palette of more than 256 colours");
  for (size_t i = 0; i < count; ++i) {
    for (size_t channel = 0; channel < 3; ++channel) bmp->palette[i][channel] = entries[i * entry_bytes + 2 - channel];
  }
  return absl::OkStatus();
}

absl::StatusOr<Bmp> Parse(absl::Span<const uint8_t> bytes) {
  if (bytes.size() < kFileHeaderBytes + 4) return CutOff();
  const uint64_t header_bytes = U32(&bytes[kFileHeaderBytes]);
  static constexpr uint32_t kHeaders[] = {12, 40, 52, 56, 64, 108, 124};
  if (std::find(std::begin(kHeaders), std::end(kHeaders), header_bytes) == std::end(kHeaders)) {
    return Invalid(absl::StrCat("a header of ", header_bytes, " bytes is not supported"));
  }
  uint64_t at = kFileHeaderBytes + header_bytes;
  if (bytes.size() < at) return CutOff();
  const uint8_t* header = &bytes[kFileHeaderBytes];
  Bmp bmp;
  uint64_t colours = 0;
  const uint64_t entry_bytes = header_bytes == 12 ? 3 : 4;
  if (header_bytes == 12) {
    bmp.width = U16(header + 4);
    bmp.height = U16(header + 6);
    bmp.bits = U16(header + 10);
  } else {
    bmp.top_down = header[11] == 0xFF;
    bmp.width = U32(header + 4);
    bmp.height = bmp.top_down ? 0 - U32(header + 8) : U32(header + 8);
    bmp.bits = U16(header + 14);
    bmp.compression = U32(header + 16);
    colours = U32(header + 32);
  }
  if (bmp.width == 0 || bmp.height == 0) return Invalid("width or height is 0");
  switch (bmp.bits) {
    case 1:
    case 4:
    case 8:
      break;
    case 16:
      bmp.pixels = Pixels::k555;
      break;
    case 24:
    case 32:
      bmp.pixels = Pixels::kBytes;
      break;
    default:
      return Invalid(absl::StrCat(bmp.bits, " bits per pixel are not supported"));
  }
  if (colours == 0) colours = uint64_t{1} << bmp.bits;
  if (bmp.compression > kBitFields) return Invalid(absl::StrCat("compression ", bmp.compression, " is not supported"));
  if (bmp.compression == kBitFields) {
    const bool inside = header_bytes >= 52;
    const uint8_t* masks = inside ? header + 40 : header + header_bytes;
    if (!inside && bytes.size() < (at += 12)) return CutOff();
    HEADRACE_RETURN_IF_ERROR(ReadMasks(masks, header_bytes >= 56, &bmp));
  }
  bmp.data = U32(&bytes[10]);
  const bool has_palette = bmp.bits <= 8;
  if (bmp.data == kFileHeaderBytes + header_bytes && has_palette) bmp.data += entry_bytes * colours;
  if (has_palette) {
    if (colours > 65536) return Invalid(absl::StrCat("a palette of ", colours, " colours"));
    const absl::Span<const uint8_t> entries = bytes.subspan(at, entry_bytes * colours);
    at += entries.size();
    HEADRACE_RETURN_IF_ERROR(ReadPalette(entries, colours, entry_bytes, &bmp));
  }
  if (bmp.data == 0) bmp.data = at;
  if (bmp.has_runs() && !has_palette) return Invalid("run lengths without a palette");
  return bmp;
}

// Undoes run lengths into one byte a pixel, in the order of the file.
absl::Status DecodeRuns(const Bmp& bmp, absl::Span<const uint8_t> bytes, std::vector<uint8_t>* pixels) {
  const bool nibbles = bmp.compression == kRle4;
  const uint64_t width = bmp.width, size = width * bmp.height;
  uint64_t at = bmp.data, x = 0;
  pixels->clear();
  const auto append = [&](uint8_t byte, uint64_t index) {
    pixels->push_back(!nibbles ? byte : index % 2 == 0 ? byte >> 4 : byte & 15);
  };
  while (pixels->size() < size) {
    if (bytes.size() < 2 || at > bytes.size() - 2) return CutOff();
    const uint64_t count = bytes[at];
    const uint8_t byte = bytes[at + 1];
    at += 2;
    if (count > 0) {
      const uint64_t fitting = std::min(count, width - std::min(x, width));
      for (uint64_t i = 0; i < fitting; ++i) append(byte, i);
      x += fitting;
    } else if (byte == 0) {
      while (pixels->size() % width != 0) pixels->push_back(0);
      x = 0;
    } else if (byte == 1) {
      return Invalid("the picture's data end too early");
    } else if (byte == 2) {
      if (at > bytes.size() - 2) return CutOff();
      const uint64_t skipped = bytes[at] + bytes[at + 1] * width;
      at += 2;
      pixels->resize(pixels->size() + std::min(size - pixels->size(), skipped));
      x = pixels->size() % width;
    } else {
      const uint64_t literal = std::min<uint64_t>(size - pixels->size(), byte);
      const uint64_t literal_bytes = nibbles ? (literal + 1) / 2 : literal;
      if (literal_bytes > bytes.size() - at) return CutOff();
      for (uint64_t i = 0; i < literal; ++i) append(bytes[at + (nibbles ? i / 2 : i)], i);
      x += byte;
      at += literal_bytes;
      at += at % 2;
    }
  }
  return absl::OkStatus();
}

void ConvertRow(const Bmp& bmp, const uint8_t* row, uint32_t data_bits, int left, int width, uint8_t* out) {
  for (int i = 0; i < width; ++i, out += 3) {
    const size_t x = static_cast<size_t>(left + i);
    if (bmp.pixels == Pixels::kBytes) {
      const uint8_t* pixel = row + x * (data_bits / 8);
      out[0] = pixel[bmp.red];
      out[1] = pixel[bmp.green];
      out[2] = pixel[bmp.blue];
    } else if (data_bits == 16) {
      const uint32_t value = U16(row + 2 * x);
      const bool wide = bmp.pixels == Pixels::k565;
      out[0] = static_cast<uint8_t>((value >> (wide ? 11 : 10) & 31) * 255 / 31);
      out[1] = static_cast<uint8_t>(wide ? (value >> 5 & 63) * 255 / 63 : (value >> 5 & 31) * 255 / 31);
      out[2] = static_cast<uint8_t>((value & 31) * 255 / 31);
    } else {
      const size_t bit = x * data_bits;
      const int index = row[bit / 8] >> (8 - data_bits - bit % 8) & ((1 << data_bits) - 1);
      if (bmp.pixels == Pixels::kPalette) {
        std::memcpy(out, bmp.palette[index], 3);
      } else {
        std::memset(out, bmp.pixels == Pixels::kGrey ? index : index != 0 ? 255 : 0, 3);
      }
    }
  }
}

}  // namespace

bool IsBmp(absl::Span<const uint8_t> bytes) { return bytes.size() >= 2 && bytes[0] == 'B' && bytes[1] == 'M'; }

absl::StatusOr<ImageInfo> ReadBmpHeader(absl::Span<const uint8_t> bytes) {
  HEADRACE_ASSIGN_OR_RETURN(const Bmp bmp, Parse(bytes));
  ImageInfo info;
  info.format = ImageFormat::kBmp;
  info.width = bmp.width;
  info.height = bmp.height;
  return info;
}

absl::Status DecodeBmp(absl::Span<const uint8_t> bytes, const ImageInfo& info, const Rect& region, std::vector<uint8_t>* scratch,
                       RgbImage* out) {
  HEADRACE_ASSIGN_OR_RETURN(const Bmp bmp, Parse(bytes));
  if (bmp.width != info.width || bmp.height != info.height) return Invalid("the picture has another size than the index says");
  const uint8_t* rows = nullptr;
  uint64_t stride = bmp.stride();
  uint32_t data_bits = bmp.data_bits();
  if (bmp.has_runs()) {
    HEADRACE_RETURN_IF_ERROR(DecodeRuns(bmp, bytes, scratch));
    rows = scratch->data();
    stride = bmp.width;
    data_bits = 8;
  } else {
    // The padding behind the last row may be missing. Pillow's rows overlap where it takes pixels of 1 and 4 bits for grey of 8.
    const uint64_t needed = stride < bmp.row_bytes() ? bmp.row_bytes() * bmp.height : stride * (bmp.height - 1) + bmp.row_bytes();
    if (bmp.data > bytes.size() || needed > bytes.size() - bmp.data) return CutOff();
    rows = bytes.data() + bmp.data;
  }
  out->Resize(region.width, region.height);
  for (int y = 0; y < region.height; ++y) {
    const uint32_t shown = static_cast<uint32_t>(region.top + y);
    const uint32_t stored = bmp.top_down ? shown : bmp.height - 1 - shown;
    ConvertRow(bmp, rows + stride * stored, data_bits, region.left, region.width, out->row(y));
  }
  return absl::OkStatus();
}

}  // namespace headrace
