#include "core/decode/png/png_decoder.h"

#include <png.h>
#include <zlib.h>

#include <algorithm>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "core/decode/png/png_header.h"

namespace headrace {
namespace {

constexpr size_t kMessageBytes = 200;
constexpr char kCutOff[] = "the file is cut off";
using Palette = uint8_t[256][3];

// How samples lie in a row that libpng gives with packed pixels expanded to bytes.
struct Layout {
  int colour_type;
  int bits;  // 8 or 16; shallower ones arrive as bytes
  int channels;
  int scale;  // of shallow grey: 255, 85, 17; else 1
};

// Columns [left, left + width) of a row as RGB.
void ConvertRow(const uint8_t* row, const Layout& layout, const Palette& palette, int left,
                int width, uint8_t* out) {
  const int sample_bytes = layout.bits / 8;
  const int pixel_bytes = sample_bytes * layout.channels;
  const uint8_t* in = row + static_cast<ptrdiff_t>(left) * pixel_bytes;
  const uint8_t* const end = in + static_cast<ptrdiff_t>(width) * pixel_bytes;
  if (layout.colour_type == PNG_COLOR_TYPE_PALETTE) {
    for (; in != end; in += pixel_bytes, out += 3) std::memcpy(out, palette[*in], 3);
  } else if (layout.colour_type & PNG_COLOR_MASK_COLOR) {
    for (; in != end; in += pixel_bytes, out += 3) {
      for (int i = 0; i < 3; ++i) out[i] = in[i * sample_bytes];
    }
  } else {
    // Grey of 16 bits without alpha is Pillow's mode I;16, which convert("RGB") clips.
    const bool clip = layout.bits == 16 && layout.channels == 1;
    for (; in != end; in += pixel_bytes, out += 3) {
      const uint8_t value =
          clip ? (in[0] != 0 ? 255 : in[1]) : static_cast<uint8_t>(*in * layout.scale);
      out[0] = out[1] = out[2] = value;
    }
  }
}

bool IsNameByte(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; }

void AppendNumber(uint32_t value, std::vector<uint8_t>* to) {
  for (const int shift : {24, 16, 8, 0}) to->push_back(static_cast<uint8_t>(value >> shift));
}

void AppendChunk(std::string_view type, absl::Span<const uint8_t> body, std::vector<uint8_t>* to) {
  AppendNumber(static_cast<uint32_t>(body.size()), to);
  const size_t counted = to->size();
  to->insert(to->end(), type.begin(), type.end());
  to->insert(to->end(), body.begin(), body.end());
  AppendNumber(static_cast<uint32_t>(crc32_z(0, to->data() + counted, to->size() - counted)), to);
}

}  // namespace

struct PngDecoder::State {
  // What libpng gets to see: IHDR, and the image data in one run of IDAT chunks. Pillow looks at no more of a file.
  std::vector<uint8_t> head, tail;
  std::vector<absl::Span<const uint8_t>> pieces;
  std::vector<absl::Span<const uint8_t>> deflated;  // the image data
  size_t piece = 0;  // the first with bytes that libpng has not asked for yet

  jmp_buf jump;
  char error[kMessageBytes];
  char warning[kMessageBytes];
  png_structp png = nullptr;
  png_infop png_info = nullptr;
  PngIhdr ihdr;
  Palette palette;
  Layout layout;
  std::vector<uint8_t> pixels;  // one row, or the whole picture if it is interlaced
  size_t row_bytes = 0;
  int next_row = 0;         // of one that is not interlaced: the row in `pixels`
  uint64_t rows_there = 0, inflated = 0;  // rows that were decoded, of all passes, and what they took of zlib's bytes

  [[noreturn]] static void OnError(png_structp png, png_const_charp message) {
    auto* state = static_cast<State*>(png_get_error_ptr(png));
    std::snprintf(state->error, kMessageBytes, "%s", message);
    longjmp(state->jump, 1);
  }
  static void OnWarning(png_structp png, png_const_charp message) {
    auto* state = static_cast<State*>(png_get_error_ptr(png));
    if (state->warning[0] == '\0') std::snprintf(state->warning, kMessageBytes, "%s", message);
  }
  static void OnRead(png_structp png, png_bytep data, size_t size) {
    auto* state = static_cast<State*>(png_get_io_ptr(png));
    while (size > 0) {
      if (state->piece == state->pieces.size()) png_error(png, kCutOff);
      absl::Span<const uint8_t>& rest = state->pieces[state->piece];
      const size_t taken = std::min(size, rest.size());
      std::memcpy(data, rest.data(), taken);
      rest.remove_prefix(taken);
      state->piece += rest.empty() ? 1 : 0;
      data += taken;
      size -= taken;
    }
  }
  // A row's samples are there; afterwards libpng may still find that zlib's end is missing.
  static void OnRow(png_structp png, png_row_infop row, png_bytep) {
    auto* state = static_cast<State*>(png_get_user_transform_ptr(png));
    ++state->rows_there;
    state->inflated += 1 + (uint64_t{row->width} * state->layout.channels * state->ihdr.bits + 7) / 8;
  }

  absl::Status Prepare(absl::Span<const uint8_t> bytes);
  uint64_t NumRows() const;
  bool EndsEarly() const;
  void ConvertNext(const Rect& region, RgbImage* out) const;
  void ConvertRest(const Rect& region, RgbImage* out);

  // What follows jumps out through `jump`: no object with a destructor lives in these functions.
  void Start();
  void ReadRegion(const Rect& region, RgbImage* out);
  bool Run(const Rect& region, RgbImage* out);
};

absl::Status PngDecoder::State::Prepare(absl::Span<const uint8_t> bytes) {
  ihdr = {};
  next_row = 0;
  rows_there = inflated = 0;
  std::memset(palette, 0, sizeof(palette));
  head.assign(std::begin(kPngSignature), std::end(kPngSignature));
  pieces.clear();
  deflated.clear();
  piece = 0;
  bytes.remove_prefix(std::min(bytes.size(), head.size()));
  PngChunk chunk;
  bool is_there = TakePngChunk(&bytes, &chunk);
  for (; is_there && chunk.type != "IDAT"; is_there = TakePngChunk(&bytes, &chunk)) {
    if (!std::all_of(chunk.type.begin(), chunk.type.end(), IsNameByte)) return InvalidPng("impossible name of a chunk");
    if (chunk.type == "IEND") return InvalidPng("no image data");
    if (!chunk.is_whole) return InvalidPng(kCutOff);
    if (!chunk.HasRightChecksum()) return InvalidPng("wrong checksum of " + std::string(chunk.type));
    if (chunk.type == "IHDR") {
      HEADRACE_ASSIGN_OR_RETURN(ihdr, ReadIhdr(chunk));
    } else if (chunk.type == "PLTE" && ihdr.colour_type == PNG_COLOR_TYPE_PALETTE) {
      const size_t colours = chunk.body.size() / 3;
      if (colours > std::size(palette)) return InvalidPng("more than 256 colours");
      std::memset(palette, 0, sizeof(palette));
      std::memcpy(palette, chunk.body.data(), 3 * colours);
    }
  }
  if (!is_there) return InvalidPng(kCutOff);
  if (ihdr.channels == 0) return InvalidPng("no IHDR chunk");
  std::vector<uint8_t> body;
  AppendNumber(ihdr.width, &body);
  AppendNumber(ihdr.height, &body);
  body.insert(body.end(), {ihdr.bits, ihdr.colour_type, 0, 0, uint8_t{ihdr.interlaced}});
  AppendChunk("IHDR", body, &head);
  constexpr uint8_t kBlack[3] = {};
  if (ihdr.colour_type == PNG_COLOR_TYPE_PALETTE) AppendChunk("PLTE", kBlack, &head);  // libpng asks for one
  pieces.push_back(head);
  for (; is_there && chunk.type == "IDAT"; is_there = TakePngChunk(&bytes, &chunk)) {
    deflated.push_back(chunk.body);
    if (chunk.is_whole) {
      pieces.push_back(chunk.bytes);
    } else {
      tail.clear();
      AppendChunk("IDAT", chunk.body, &tail);
      pieces.push_back(tail);
      std::snprintf(warning, kMessageBytes, "%s", kCutOff);
    }
  }
  return absl::OkStatus();
}

// Rows that hold samples, of all passes.
uint64_t PngDecoder::State::NumRows() const {
  if (!ihdr.interlaced) return ihdr.height;
  uint64_t rows = 0;
  for (int pass = 0; pass < PNG_INTERLACE_ADAM7_PASSES; ++pass) {
    if (PNG_PASS_COLS(ihdr.width, pass) > 0) rows += PNG_PASS_ROWS(ihdr.height, pass);
  }
  return rows;
}

// Whether zlib's data have an orderly end behind the rows that are there.
bool PngDecoder::State::EndsEarly() const {
  z_stream stream = {};
  if (inflateInit(&stream) != Z_OK) return false;
  int code = Z_OK;
  Bytef piece_of_rows[4096];
  for (size_t i = 0; i < deflated.size() && code == Z_OK; ++i) {
    stream.next_in = const_cast<Bytef*>(deflated[i].data());
    stream.avail_in = static_cast<uInt>(deflated[i].size());
    while (stream.avail_in > 0 && code == Z_OK && stream.total_out <= inflated) {
      stream.next_out = piece_of_rows;
      stream.avail_out = sizeof(piece_of_rows);
      code = inflate(&stream, Z_NO_FLUSH);
    }
  }
  inflateEnd(&stream);
  return code == Z_STREAM_END && stream.total_out == inflated;
}

void PngDecoder::State::Start() {
  png_set_read_fn(png, this, &OnRead);
  // Damage, which zlib's own checksum mostly turns into an error.
  png_set_crc_action(png, PNG_CRC_WARN_USE, PNG_CRC_WARN_USE);
  png_set_user_limits(png, 0x7fffffff, 0x7fffffff);  // the picture's size was bounded by the probe
  png_set_read_user_transform_fn(png, &OnRow);
  png_set_user_transform_info(png, this, 0, 0);
  png_read_info(png, png_info);
  layout.colour_type = ihdr.colour_type;
  layout.bits = ihdr.bits == 16 ? 16 : 8;
  layout.channels = png_get_channels(png, png_info);
  layout.scale = ihdr.bits < 8 ? 255 / ((1 << ihdr.bits) - 1) : 1;
  png_set_packing(png);
}

void PngDecoder::State::ReadRegion(const Rect& region, RgbImage* out) {
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, png_info);
  row_bytes = png_get_rowbytes(png, png_info);
  pixels.assign(passes == 1 ? row_bytes : row_bytes * ihdr.height, 0);
  if (passes == 1) {
    for (; next_row < region.top + region.height; ++next_row) {
      png_read_row(png, pixels.data(), nullptr);
      ConvertNext(region, out);
    }
    return;
  }
  for (int pass = 0; pass < passes; ++pass) {
    for (size_t y = 0; y < ihdr.height; ++y) png_read_row(png, pixels.data() + y * row_bytes, nullptr);
  }
}

void PngDecoder::State::ConvertNext(const Rect& region, RgbImage* out) const {
  if (next_row < region.top) return;
  ConvertRow(pixels.data(), layout, palette, region.left, region.width, out->row(next_row - region.top));
}

// What libpng has left to do: an interlaced picture; rows that are not there, which Pillow leaves at 0.
void PngDecoder::State::ConvertRest(const Rect& region, RgbImage* out) {
  const int end = region.top + region.height;
  if (ihdr.interlaced) {
    for (int y = region.top; y < end; ++y) {
      ConvertRow(pixels.data() + static_cast<size_t>(y) * row_bytes, layout, palette, region.left, region.width, out->row(y - region.top));
    }
    return;
  }
  for (; next_row < end; ++next_row) {
    if (rows_there <= static_cast<uint64_t>(next_row)) std::fill(pixels.begin(), pixels.end(), uint8_t{0});
    ConvertNext(region, out);
  }
}

bool PngDecoder::State::Run(const Rect& region, RgbImage* out) {
  if (setjmp(jump) != 0) {
    png_destroy_read_struct(&png, &png_info, nullptr);
    // Pillow asks for no more than the rows, and takes an orderly end of zlib's data for the end of the picture.
    const bool is_read = rows_there > 0 && (rows_there == NumRows() || EndsEarly());
    if (is_read && warning[0] == '\0') std::memcpy(warning, error, kMessageBytes);
    return is_read;
  }
  png = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &OnError, &OnWarning);
  if (png == nullptr) return false;
  png_info = png_create_info_struct(png);
  if (png_info == nullptr) png_error(png, "out of memory");
  Start();
  out->Resize(region.width, region.height);  // not before the file has been found to be of the size that the index claims
  ReadRegion(region, out);
  png_destroy_read_struct(&png, &png_info, nullptr);
  return true;
}

PngDecoder::PngDecoder() : state_(std::make_unique<State>()) {}
PngDecoder::~PngDecoder() = default;

absl::Status PngDecoder::Decode(absl::Span<const uint8_t> bytes, const ImageInfo& info,
                                const Rect& region, RgbImage* out, std::string* warning) {
  State& state = *state_;
  state.error[0] = state.warning[0] = '\0';
  HEADRACE_RETURN_IF_ERROR(state.Prepare(bytes));
  if (state.ihdr.width != info.width || state.ihdr.height != info.height) {
    return InvalidPng("the picture has another size than the index says");
  }
  if (!state.Run(region, out)) return InvalidPng(state.error);
  state.ConvertRest(region, out);
  if (warning != nullptr) *warning = state.warning;
  return absl::OkStatus();
}

}  // namespace headrace
