#include "core/decode/tiff/tiff_decoder.h"

#include <tiffio.h>

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "core/decode/cmyk.h"
#include "core/decode/exif.h"
#include "core/decode/tiff/tiff_directory.h"

namespace headrace {
namespace {

constexpr tmsize_t kMaxPieceBytes = tmsize_t{64} << 20;  // of what libtiff asks for at once; a tile has a fair size
constexpr double kMaxTilesPx = 178'956'970;  // of all tiles, besides four times the picture
constexpr size_t kMessageBytes = 200;

absl::Status Invalid(const std::string& reason) { return absl::InvalidArgumentError(absl::StrCat("TIFF: ", reason)); }

enum class Kind { kGrey, kGreyClipped, kSigned, kFloat, kPalette, kRgb, kCmyk };

// A file in memory that libtiff has open.
class File {
 public:
  explicit File(absl::Span<const uint8_t> bytes) : bytes_(bytes) {
    Open();
    if (tiff_ != nullptr && warning_[0] == '\0') return;
    mended_ = WithMendedDirectory(bytes);
    if (mended_.empty()) return;
    if (tiff_ != nullptr) TIFFClose(tiff_);
    bytes_ = mended_;
    at_ = 0;
    error_[0] = warning_[0] = '\0';
    Open();
  }
  ~File() {
    if (tiff_ != nullptr) TIFFClose(tiff_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  TIFF* get() const { return tiff_; }
  absl::Span<const uint8_t> bytes() const { return bytes_; }
  // libtiff's first complaint.
  absl::Status error() const { return Invalid(error_[0] != '\0' ? error_ : "the file is broken"); }
  const char* warning() const { return warning_; }
  void forget_warning() { warning_[0] = '\0'; }

  // The value of a 16-bit tag, or its default; `otherwise` when it has none.
  int Tag(uint32_t tag, int otherwise) const {
    uint16_t value = 0;
    return TIFFGetFieldDefaulted(tiff_, tag, &value) != 0 ? value : otherwise;
  }

 private:
  void Open() {
    TIFFOpenOptions* options = TIFFOpenOptionsAlloc();
    TIFFOpenOptionsSetMaxSingleMemAlloc(options, kMaxPieceBytes);
    TIFFOpenOptionsSetErrorHandlerExtR(options, &Keep, error_);
    TIFFOpenOptionsSetWarningHandlerExtR(options, &Keep, warning_);
    tiff_ = TIFFClientOpenExt("", "r", this, &Read, &Write, &Seek, &Close, &Size, &Map, &Unmap, options);
    TIFFOpenOptionsFree(options);
  }
  static int Keep(TIFF*, void* message, const char*, const char* format, va_list arguments) {
    char* const text = static_cast<char*>(message);
    if (text[0] == '\0') std::vsnprintf(text, kMessageBytes, format, arguments);
    return 1;
  }
  static tmsize_t Read(thandle_t handle, void* to, tmsize_t size) {
    File& file = *static_cast<File*>(handle);
    if (size < 0 || file.at_ > file.bytes_.size()) return 0;
    const size_t count = std::min(static_cast<size_t>(size), file.bytes_.size() - file.at_);
    if (count > 0) std::memcpy(to, file.bytes_.data() + file.at_, count);
    file.at_ += count;
    return static_cast<tmsize_t>(count);
  }
  static tmsize_t Write(thandle_t, void*, tmsize_t) { return 0; }
  static toff_t Seek(thandle_t handle, toff_t offset, int whence) {
    File& file = *static_cast<File*>(handle);
    file.at_ = offset + (whence == SEEK_CUR ? file.at_ : whence == SEEK_END ? file.bytes_.size() : 0);
    return file.at_;
  }
  static int Close(thandle_t) { return 0; }
  static toff_t Size(thandle_t handle) { return static_cast<File*>(handle)->bytes_.size(); }

  // libtiff decodes from there without a copy, and writes nothing to it.
  static int Map(thandle_t handle, void** base, toff_t* size) {
    const absl::Span<const uint8_t> bytes = static_cast<File*>(handle)->bytes_;
    *base = const_cast<uint8_t*>(bytes.data());
    *size = bytes.size();
    return 1;
  }
  static void Unmap(thandle_t, void*, toff_t) {}

  absl::Span<const uint8_t> bytes_;
  std::vector<uint8_t> mended_;
  uint64_t at_ = 0;
  char error_[kMessageBytes] = "", warning_[kMessageBytes] = "";
  TIFF* tiff_ = nullptr;
};

struct Layout {
  uint32_t width = 0, height = 0;
  Kind kind = Kind::kGrey;
  int bits = 8;       // a sample, as it is read
  int file_bits = 8;  // as the file says
  int samples = 1;    // a pixel, with alpha and the like
  int planes = 1;     // of the pixels in the file: 1 where samples lie side by side
  int colours = 1;    // samples that count
  bool inverted = false;
  bool premultiplied = false;
  bool swapped = false;     // bytes of a number
  bool as_in_file = false;  // bytes of a number that is not compressed, whatever the file's byte order
  uint8_t palette[3][256] = {};

  int planes_read() const { return planes == 1 ? 1 : std::max(colours, premultiplied ? 4 : 0); }
};

bool IsCompressionRead(int compression) {
  static constexpr int kRead[] = {COMPRESSION_NONE, COMPRESSION_CCITTRLE, COMPRESSION_CCITTFAX3,
                                  COMPRESSION_CCITTFAX4, COMPRESSION_LZW, COMPRESSION_JPEG,
                                  COMPRESSION_DEFLATE, COMPRESSION_ADOBE_DEFLATE, COMPRESSION_PACKBITS};
  return std::find(std::begin(kRead), std::end(kRead), compression) != std::end(kRead);
}

// What Pillow reads of each colour space (OPEN_INFO of its TiffImagePlugin.py).
absl::Status SetKind(const File& file, bool little_endian, Layout* layout) {
  const int photometric = file.Tag(TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISWHITE);
  const int format = file.Tag(TIFFTAG_SAMPLEFORMAT, SAMPLEFORMAT_UINT);
  const bool plain = format == SAMPLEFORMAT_UINT;
  const int bits = layout->bits;
  const bool shallow = bits == 1 || bits == 2 || bits == 4 || bits == 8;
  const absl::Status refused = Invalid(absl::StrCat("photometric ", photometric, " with ", layout->samples, " samples of ", bits,
                                                    " bits, sample format ", format, ", is not supported"));
  switch (photometric) {
    case PHOTOMETRIC_MINISWHITE:
    case PHOTOMETRIC_MINISBLACK: {
      const bool white = photometric == PHOTOMETRIC_MINISWHITE;
      layout->inverted = white && shallow;
      if (layout->samples == 2 && bits == 8 && plain && !white && !layout->premultiplied) return absl::OkStatus();
      if (layout->samples != 1) return refused;
      if (shallow && (plain || (bits == 8 && format == SAMPLEFORMAT_INT && !white))) return absl::OkStatus();
      if (format == SAMPLEFORMAT_IEEEFP && bits == 32) {
        layout->kind = Kind::kFloat;
      } else if (format == SAMPLEFORMAT_INT && !white && (bits == 16 || bits == 32)) {
        layout->kind = Kind::kSigned;
      } else if (plain && bits == 32 && !white && little_endian) {
        layout->kind = Kind::kSigned;
      } else if (plain && ((bits == 12 && !white && little_endian) || (bits == 16 && (!white || little_endian)))) {
        layout->kind = Kind::kGreyClipped;
      } else {
        return refused;
      }
      return absl::OkStatus();
    }
    case PHOTOMETRIC_PALETTE: {
      layout->kind = Kind::kPalette;
      const bool alone = layout->samples == 1 && shallow;
      if (!plain || !(alone || (layout->samples == 2 && bits == 8 && !layout->premultiplied))) return refused;
      uint16_t *red, *green, *blue;
      if (TIFFGetField(file.get(), TIFFTAG_COLORMAP, &red, &green, &blue) == 0) return Invalid("no palette");
      for (int i = 0; i < 1 << bits; ++i) {
        layout->palette[0][i] = static_cast<uint8_t>(red[i] >> 8);
        layout->palette[1][i] = static_cast<uint8_t>(green[i] >> 8);
        layout->palette[2][i] = static_cast<uint8_t>(blue[i] >> 8);
      }
      return absl::OkStatus();
    }
    case PHOTOMETRIC_YCBCR:
      // libtiff makes RGB of it.
      if (file.Tag(TIFFTAG_COMPRESSION, 0) != COMPRESSION_JPEG || layout->planes != 1 || layout->samples != 3) {
        return Invalid("YCbCr is supported with JPEG compression only");
      }
      TIFFSetField(file.get(), TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
      [[fallthrough]];
    case PHOTOMETRIC_RGB:
      layout->kind = Kind::kRgb;
      layout->colours = 3;
      if (!plain || layout->samples < 3 || layout->samples > 6) return refused;
      if (bits != 8 && !(bits == 16 && layout->samples <= 4)) return refused;
      return absl::OkStatus();
    case PHOTOMETRIC_SEPARATED:
      layout->kind = Kind::kCmyk;
      layout->colours = 4;
      if (!plain || layout->samples < 4 || layout->samples > 6) return refused;
      if (bits != 8 && !(bits == 16 && layout->samples == 4)) return refused;
      return absl::OkStatus();
    default:
      return refused;
  }
}

// Of planes that are not compressed Pillow uses the name of the samples without what it says of their form, so that it misreads them.
void ReadAsPillowReadsPlanes(Layout* layout) {
  switch (layout->kind) {
    case Kind::kGreyClipped:
      break;  // fails there
    case Kind::kSigned:
    case Kind::kFloat:
      layout->bits = 32;
      layout->as_in_file = true;
      break;
    default:
      layout->inverted = false;
      if (layout->kind != Kind::kGrey || layout->bits > 1) layout->bits = 8;
  }
}

absl::StatusOr<Layout> ReadLayout(const File& file, absl::Span<const uint8_t> bytes) {
  if (file.get() == nullptr) return file.error();
  Layout layout;
  if (TIFFGetField(file.get(), TIFFTAG_IMAGEWIDTH, &layout.width) == 0 ||
      TIFFGetField(file.get(), TIFFTAG_IMAGELENGTH, &layout.height) == 0 || layout.width == 0 || layout.height == 0) {
    return Invalid("width or height is 0");
  }
  layout.bits = layout.file_bits = file.Tag(TIFFTAG_BITSPERSAMPLE, 1);
  layout.samples = file.Tag(TIFFTAG_SAMPLESPERPIXEL, 1);
  const int compression = file.Tag(TIFFTAG_COMPRESSION, COMPRESSION_NONE);
  const bool separate = file.Tag(TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG) == PLANARCONFIG_SEPARATE && layout.samples > 1;
  if (separate) layout.planes = layout.samples;
  if (!IsCompressionRead(compression)) return Invalid(absl::StrCat("compression ", compression, " is not supported"));
  uint16_t count = 0;
  uint16_t* extra = nullptr;
  if (TIFFGetFieldDefaulted(file.get(), TIFFTAG_EXTRASAMPLES, &count, &extra) != 0 && count > 0) {
    layout.premultiplied = extra[0] == EXTRASAMPLE_ASSOCALPHA;
  }
  const bool has_alpha = count > 0 && extra[0] == EXTRASAMPLE_UNASSALPHA;
  HEADRACE_RETURN_IF_ERROR(SetKind(file, bytes[0] == 'I', &layout));
  if (file.Tag(TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG) == PLANARCONFIG_SEPARATE && compression == COMPRESSION_NONE) {
    ReadAsPillowReadsPlanes(&layout);
  }
  // Pillow exchanges bytes that libtiff has already exchanged.
  const bool is_number = layout.kind == Kind::kSigned || layout.kind == Kind::kFloat;
  layout.swapped = bytes[0] == 'M' && compression != COMPRESSION_NONE && is_number;
  const bool rgba = layout.kind == Kind::kRgb && layout.samples == 4 && has_alpha;
  if (separate && (compression == COMPRESSION_NONE ? layout.samples != layout.colours && !rgba
                                                   : layout.samples > 4 && (layout.premultiplied || has_alpha))) {
    return Invalid("extra samples in separate planes are not supported");
  }
  if (TIFFIsTiled(file.get()) != 0 && (TIFFTileSize(file.get()) <= 0 || TIFFTileSize(file.get()) > kMaxPieceBytes)) {
    return Invalid("its tiles are too large");
  }
  uint32_t tile_width = 0, tile_height = 0;
  if (TIFFGetField(file.get(), TIFFTAG_TILEWIDTH, &tile_width) != 0 &&
      TIFFGetField(file.get(), TIFFTAG_TILELENGTH, &tile_height) != 0 && tile_width > 0 && tile_height > 0) {
    const auto covered = [](double side, double tile) { return std::ceil(side / tile) * tile; };  // cannot overflow
    const double pixels = covered(layout.width, tile_width) * covered(layout.height, tile_height);
    if (pixels > 4.0 * layout.width * layout.height + kMaxTilesPx) return Invalid("its tiles are far larger than the picture");
  }
  return layout;
}

// No number is black.
uint8_t Clip(double value) { return !(value > 0) ? 0 : value >= 255 ? 255 : static_cast<uint8_t>(value); }

template <typename T>
T Get(const uint8_t* from, bool swapped = false) {
  uint8_t bytes[sizeof(T)];
  std::copy_n(from, sizeof(T), bytes);
  if (swapped) std::reverse(bytes, bytes + sizeof(T));
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// The sample of a pixel in a row whose pixels have `step` of them, as libtiff gives it: packed, in the machine's byte order.
int Bits(const uint8_t* row, size_t index, int bits) {
  const size_t bit = index * static_cast<size_t>(bits);
  if (bits == 12) {
    const uint8_t* at = row + bit / 8;
    return bit % 8 == 0 ? at[0] << 4 | at[1] >> 4 : (at[0] & 15) << 8 | at[1];
  }
  return row[bit / 8] >> (8 - static_cast<size_t>(bits) - bit % 8) & ((1 << bits) - 1);
}

// `rows`: one for each plane; pixels [left, left + width) of them.
void ConvertRow(const Layout& layout, const uint8_t* const* rows, int left, int width, uint8_t* out) {
  const size_t step = layout.planes > 1 ? 1 : static_cast<size_t>(layout.samples);
  const size_t sample_bytes = static_cast<size_t>(layout.bits) / 8;
  for (int i = 0; i < width; ++i, out += 3) {
    const size_t x = static_cast<size_t>(left + i);
    // Of the high byte of a colour.
    const auto high = [&](int colour) {
      const uint8_t* row = layout.planes > 1 ? rows[colour] : rows[0] + static_cast<size_t>(colour) * sample_bytes;
      return row[x * step * sample_bytes + sample_bytes - 1];
    };
    const uint8_t* first = rows[0] + x * step * sample_bytes;
    switch (layout.kind) {
      case Kind::kGrey: {
        const int value = Bits(rows[0], x * step, layout.bits) * (255 / ((1 << layout.bits) - 1));
        std::memset(out, layout.inverted ? 255 - value : value, 3);
        break;
      }
      case Kind::kGreyClipped:
        std::memset(out, std::min(layout.bits == 12 ? Bits(rows[0], x, 12) : int{Get<uint16_t>(first)}, 255), 3);
        break;
      case Kind::kSigned:
        std::memset(out, Clip(layout.bits == 16 ? Get<int16_t>(first, layout.swapped) : Get<int32_t>(first, layout.swapped)), 3);
        break;
      case Kind::kFloat:
        std::memset(out, Clip(double{Get<float>(first, layout.swapped)}), 3);
        break;
      case Kind::kPalette: {
        const int index = Bits(rows[0], x * step, layout.bits);
        for (int channel = 0; channel < 3; ++channel) out[channel] = layout.palette[channel][index];
        break;
      }
      case Kind::kRgb:
        for (int channel = 0; channel < 3; ++channel) out[channel] = high(channel);
        if (const int alpha = layout.premultiplied ? high(3) : 255; alpha != 255) {
          for (int channel = 0; channel < 3; ++channel) {
            out[channel] = static_cast<uint8_t>(alpha == 0 ? 0 : std::min(out[channel] * 255 / alpha, 255));
          }
        }
        break;
      case Kind::kCmyk:
        for (int channel = 0; channel < 3; ++channel) out[channel] = InkToColor(high(channel), 255 - high(3));
        break;
    }
  }
}

absl::Status DecodeStrips(const File& file, const Layout& layout, const Rect& region, std::vector<uint8_t>* scratch,
                          RgbImage* out) {
  const auto row_bytes = static_cast<size_t>(TIFFScanlineSize(file.get()));
  const int planes = layout.planes_read();
  // Separate planes are read one after another: libtiff would begin a strip anew for each row if they took turns.
  const size_t plane_bytes = row_bytes * (planes > 1 ? static_cast<size_t>(region.height) : 1);
  scratch->resize(std::max(scratch->size(), plane_bytes * static_cast<size_t>(planes)));
  const auto row = [&](int plane, int y) {
    return scratch->data() + static_cast<size_t>(plane) * plane_bytes + (planes > 1 ? static_cast<size_t>(y) * row_bytes : 0);
  };
  const auto convert = [&](int y) {
    const uint8_t* rows[4] = {};
    for (int plane = 0; plane < planes; ++plane) rows[plane] = row(plane, y);
    ConvertRow(layout, rows, region.left, region.width, out->row(y));
  };
  uint32_t strip_rows = 0;
  TIFFGetFieldDefaulted(file.get(), TIFFTAG_ROWSPERSTRIP, &strip_rows);
  strip_rows = std::max(strip_rows, 1u);
  // Compressed strips can only be read from their first row.
  const int first = region.top - static_cast<int>(static_cast<uint32_t>(region.top) % strip_rows);
  // libtiff loses what a run of PackBits holds of the next row when it reads row by row.
  const tmsize_t strip_bytes = TIFFStripSize(file.get());
  const bool whole = file.Tag(TIFFTAG_COMPRESSION, 0) == COMPRESSION_PACKBITS && strip_bytes > 0 && strip_bytes <= kMaxPieceBytes;
  std::vector<uint8_t> strip(whole ? static_cast<size_t>(strip_bytes) : 0);
  for (int plane = 0; plane < planes; ++plane) {
    for (int y = first - region.top; y < region.height; ++y) {
      const auto file_row = static_cast<uint32_t>(region.top + y);
      const auto sample = static_cast<uint16_t>(plane);
      uint8_t* const to = row(plane, std::max(y, 0));
      if (whole) {
        const uint32_t strip_row = file_row % strip_rows;
        const uint32_t number = TIFFComputeStrip(file.get(), file_row, sample);
        if (strip_row == 0 && TIFFReadEncodedStrip(file.get(), number, strip.data(), strip_bytes) < 0) return file.error();
        std::copy_n(strip.data() + size_t{strip_row} * row_bytes, row_bytes, to);
      } else if (TIFFReadScanline(file.get(), to, file_row, sample) != 1) {
        return file.error();
      }
      if (planes == 1 && y >= 0) convert(y);
    }
  }
  for (int y = 0; planes > 1 && y < region.height; ++y) convert(y);
  return absl::OkStatus();
}

absl::Status DecodeTiles(const File& file, const Layout& layout, const Rect& region, std::vector<uint8_t>* scratch,
                         RgbImage* out) {
  uint32_t tile_width = 0, tile_height = 0;
  TIFFGetField(file.get(), TIFFTAG_TILEWIDTH, &tile_width);
  TIFFGetField(file.get(), TIFFTAG_TILELENGTH, &tile_height);
  const auto tile_bytes = static_cast<size_t>(TIFFTileSize(file.get()));
  const auto row_bytes = static_cast<size_t>(TIFFTileRowSize(file.get()));
  const int planes = layout.planes_read();
  scratch->resize(std::max(scratch->size(), tile_bytes * static_cast<size_t>(planes)));
  const auto bottom = static_cast<uint32_t>(region.top + region.height);
  const auto right = static_cast<uint32_t>(region.left + region.width);
  for (uint32_t top = static_cast<uint32_t>(region.top) / tile_height * tile_height; top < bottom; top += tile_height) {
    for (uint32_t left = static_cast<uint32_t>(region.left) / tile_width * tile_width; left < right; left += tile_width) {
      for (int plane = 0; plane < planes; ++plane) {
        uint8_t* tile = scratch->data() + static_cast<size_t>(plane) * tile_bytes;
        if (TIFFReadTile(file.get(), tile, left, top, 0, static_cast<uint16_t>(plane)) < 0) return file.error();
      }
      const int from_x = std::max(static_cast<int>(left), region.left);
      const int end_x = static_cast<int>(std::min(left + tile_width, right));
      const int from_y = std::max(static_cast<int>(top), region.top);
      const int end_y = static_cast<int>(std::min(top + tile_height, bottom));
      for (int y = from_y; y < end_y; ++y) {
        const uint8_t* rows[4] = {};
        for (int plane = 0; plane < planes; ++plane) {
          rows[plane] = scratch->data() + static_cast<size_t>(plane) * tile_bytes + (static_cast<size_t>(y) - top) * row_bytes;
        }
        ConvertRow(layout, rows, from_x - static_cast<int>(left), end_x - from_x,
                   out->row(y - region.top) + 3 * (from_x - region.left));
      }
    }
  }
  return absl::OkStatus();
}

// Samples that are not compressed, as Pillow reads them: from where their strip or tile begins, whatever its length is said to be.
absl::Status DecodeRaw(const File& file, const Layout& layout, const Rect& region, std::vector<uint8_t>* scratch, RgbImage* out) {
  TIFF* const tiff = file.get();
  uint32_t width = layout.width, height = 0;
  const bool tiled = TIFFIsTiled(tiff) != 0;
  if (tiled) TIFFGetField(tiff, TIFFTAG_TILEWIDTH, &width);
  tiled ? TIFFGetField(tiff, TIFFTAG_TILELENGTH, &height) : TIFFGetFieldDefaulted(tiff, TIFFTAG_ROWSPERSTRIP, &height);
  if (width == 0 || height == 0) return Invalid("empty strips or tiles");
  const int planes = layout.planes_read(), samples = layout.planes == 1 ? layout.samples : 1;
  const auto row_bits = [samples](uint64_t columns, int bits) { return columns * static_cast<uint64_t>(samples * bits); };
  const bool reversed = file.Tag(TIFFTAG_FILLORDER, FILLORDER_MSB2LSB) == FILLORDER_LSB2MSB;
  const bool swapped = TIFFIsByteSwapped(tiff) != 0 && layout.bits >= 16 && !layout.as_in_file;
  const size_t kept_bytes = (row_bits(std::min(width, layout.width), layout.bits) + 7) / 8 + sizeof(uint64_t);
  if (scratch->size() < static_cast<size_t>(planes) * kept_bytes) scratch->resize(static_cast<size_t>(planes) * kept_bytes);

  // A row of the piece that begins at (left, top).
  const auto read = [&](uint32_t left, uint32_t top, uint32_t y, int plane) -> const uint8_t* {
    const auto sample = static_cast<uint16_t>(plane);
    const uint64_t offset = TIFFGetStrileOffset(tiff, tiled ? TIFFComputeTile(tiff, left, top, 0, sample) : TIFFComputeStrip(tiff, top, sample));
    const uint64_t bytes = (row_bits(std::min(width, layout.width - left), layout.bits) + 7) / 8;
    // Rows of tiles that reach beyond the picture begin in whole bytes.
    uint64_t stride = layout.width - left < width ? row_bits(width, layout.file_bits) / 8 : bytes;
    if (layout.bits == 8 && width >= layout.width && height >= layout.height) stride = std::max(stride, bytes);  // it maps one tile
    if (stride < bytes || offset == 0 || offset > file.bytes().size()) return nullptr;
    if (file.bytes().size() - offset < (y - top) * stride + bytes) return nullptr;
    const uint8_t* const row = file.bytes().data() + offset + (y - top) * stride;
    if (!reversed && !swapped) return row;
    uint8_t* const kept = scratch->data() + static_cast<size_t>(plane) * kept_bytes;
    std::copy_n(row, bytes, kept);
    if (reversed) TIFFReverseBits(kept, static_cast<tmsize_t>(bytes));
    const auto size = static_cast<size_t>(layout.bits) / 8;
    for (size_t i = 0; swapped && i + size <= bytes; i += size) std::reverse(kept + i, kept + i + size);
    return kept;
  };
  const auto right = static_cast<uint32_t>(region.left + region.width);
  for (int y = 0; y < region.height; ++y) {
    const auto file_row = static_cast<uint32_t>(region.top + y);
    for (uint32_t left = static_cast<uint32_t>(region.left) / width * width; left < right; left += width) {
      const uint8_t* rows[4] = {};
      for (int plane = 0; plane < planes; ++plane) {
        rows[plane] = read(left, file_row / height * height, file_row, plane);
        if (rows[plane] == nullptr) return Invalid("a strip or tile is cut off");
      }
      const int from = std::max(static_cast<int>(left), region.left), end = static_cast<int>(std::min(left + width, right));
      ConvertRow(layout, rows, from - static_cast<int>(left), end - from, out->row(y) + 3 * (from - region.left));
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool IsTiff(absl::Span<const uint8_t> bytes) {
  if (bytes.size() < 8) return false;
  const bool little = bytes[0] == 'I' && bytes[1] == 'I', big = bytes[0] == 'M' && bytes[1] == 'M';
  const uint8_t low = bytes[little ? 2 : 3], high = bytes[little ? 3 : 2];
  return (little || big) && high == 0 && (low == 42 || low == 43);
}

absl::StatusOr<ImageInfo> ReadTiffHeader(absl::Span<const uint8_t> bytes) {
  const File file(bytes);
  HEADRACE_ASSIGN_OR_RETURN(const Layout layout, ReadLayout(file, bytes));
  ImageInfo info;
  info.format = ImageFormat::kTiff;
  info.width = layout.width;
  info.height = layout.height;
  info.components = static_cast<uint8_t>(layout.kind == Kind::kPalette ? 3 : std::min(layout.samples, 4));
  const bool classic = bytes[2] == 42 || bytes[3] == 42;
  uint16_t tag = 0;
  TIFFGetField(file.get(), TIFFTAG_ORIENTATION, &tag);  // Tag() would give the default where there is none
  int orientation = classic ? ExifOrientation(bytes) : tag;
  if (orientation == 0) {
    uint32_t length = 0;
    const uint8_t* xmp = nullptr;
    const bool found = TIFFGetField(file.get(), TIFFTAG_XMLPACKET, &length, &xmp) != 0;
    orientation = found ? XmpOrientation({xmp, length}) : 1;
  }
  info.orientation = static_cast<uint8_t>(orientation >= 1 && orientation <= 8 ? orientation : 1);
  return info;
}

absl::Status DecodeTiff(absl::Span<const uint8_t> bytes, const ImageInfo& info, const Rect& region, std::vector<uint8_t>* scratch,
                        RgbImage* out, std::string* warning) {
  File file(bytes);
  HEADRACE_ASSIGN_OR_RETURN(const Layout layout, ReadLayout(file, bytes));
  if (layout.width != info.width || layout.height != info.height) {
    return Invalid("the picture has another size than the index says");
  }
  file.forget_warning();  // of the directory: unknown tags and the like
  out->Resize(region.width, region.height);
  const bool packed = file.Tag(TIFFTAG_COMPRESSION, COMPRESSION_NONE) != COMPRESSION_NONE;
  const auto decode = !packed ? DecodeRaw : TIFFIsTiled(file.get()) != 0 ? DecodeTiles : DecodeStrips;
  HEADRACE_RETURN_IF_ERROR(decode(file, layout, region, scratch, out));
  if (warning != nullptr) *warning = file.warning();
  return absl::OkStatus();
}

}  // namespace headrace
