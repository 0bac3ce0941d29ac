#include "core/decode/png/png_decoder.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "core/decode/png/png_header.h"
#include "core/decode/png/png_rows.h"

namespace headrace {
namespace {

constexpr uint8_t kColour = 2, kPalette = 3;  // a bit of colour types; one of them
using Palette = uint8_t[256][3];

bool IsNameByte(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Column i of row k of the image data lies at (left + i * x_step, top + k * y_step) of the picture.
struct Pass {
  uint64_t left, top, x_step, y_step;
};
constexpr Pass kAdam7[] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4}, {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}};

// How many of start, start + step, … lie in front of `end`.
uint64_t CountBelow(uint64_t end, uint64_t start, uint64_t step) { return end > start ? (end - start - 1) / step + 1 : 0; }

}  // namespace

struct PngDecoder::State {
  struct Frame {
    uint64_t left = 0, top = 0, width = 0, height = 0;
  };

  PngIhdr ihdr;
  Frame frame;  // the part of the picture that the image data fill
  Palette palette;  // of grey too, whose index is the sample or its high byte
  size_t pixel_bits = 0;
  PngRows rows;
  absl::Span<const uint8_t> image_data;  // the file from there on
  std::optional<uint32_t> sequence;      // of the last fcTL

  absl::Status Prepare(absl::Span<const uint8_t> bytes);
  absl::Status SetFrame(absl::Span<const uint8_t> body);
  void Convert(const uint8_t* row, uint64_t first, uint64_t end, uint64_t step, uint8_t* out) const;
  absl::Status ReadRegion(const Rect& region, RgbImage* out);
};

// Reads what is in front of the image data.
absl::Status PngDecoder::State::Prepare(absl::Span<const uint8_t> bytes) {
  ihdr = {};
  frame = {};
  sequence.reset();
  std::memset(palette, 0, sizeof(palette));
  bytes.remove_prefix(std::min(bytes.size(), sizeof(kPngSignature)));
  while (true) {
    image_data = bytes;
    PngChunk chunk;
    if (!TakePngChunk(&bytes, &chunk)) return InvalidPng(kPngCutOff);
    if (chunk.type == "IDAT" || chunk.type == "fdAT") break;
    if (!std::all_of(chunk.type.begin(), chunk.type.end(), IsNameByte)) return InvalidPng("impossible name of a chunk");
    if (chunk.type == "IEND") return InvalidPng("no image data");
    if (!chunk.is_whole) return InvalidPng(kPngCutOff);
    if (!chunk.HasRightChecksum()) return InvalidPng("wrong checksum of " + std::string(chunk.type));
    if (chunk.type == "IHDR") {
      const bool interlaced = ihdr.interlaced;
      HEADRACE_ASSIGN_OR_RETURN(ihdr, ReadIhdr(chunk));
      ihdr.interlaced |= interlaced;
    } else if (chunk.type == "PLTE" && ihdr.colour_type == kPalette) {
      const size_t colours = chunk.body.size() / 3;
      if (colours > std::size(palette)) return InvalidPng("more than 256 colours");
      std::memset(palette, 0, sizeof(palette));
      std::memcpy(palette, chunk.body.data(), 3 * colours);
    } else if (chunk.type == "fcTL") {
      HEADRACE_RETURN_IF_ERROR(SetFrame(chunk.body));
    }
  }
  if (ihdr.channels == 0) return InvalidPng("no IHDR chunk");
  if (!sequence.has_value()) frame = {0, 0, ihdr.width, ihdr.height};
  if (frame.width == 0 || frame.height == 0 || frame.left + frame.width > ihdr.width || frame.top + frame.height > ihdr.height) {
    return InvalidPng("the frame is not inside the picture");
  }
  if (ihdr.interlaced) frame.left = frame.top = 0;  // as Pillow puts it there
  pixel_bits = size_t{ihdr.bits} * (ihdr.colour_type == kPalette ? 1 : ihdr.channels);
  if (ihdr.colour_type != kPalette) {
    const int scale = ihdr.bits < 8 ? 255 / ((1 << ihdr.bits) - 1) : 1;
    for (int i = 0; i * scale < 256; ++i) std::memset(palette[i], i * scale, 3);
  }
  return absl::OkStatus();
}

absl::Status PngDecoder::State::SetFrame(absl::Span<const uint8_t> body) {
  if (body.size() < 26) return InvalidPng("fcTL is too short");
  const uint32_t number = PngNumber(body.data());
  if (number != (sequence.has_value() ? uint64_t{*sequence} + 1 : 0)) return InvalidPng("wrong sequence number of fcTL");
  sequence = number;
  frame = {PngNumber(body.data() + 12), PngNumber(body.data() + 16), PngNumber(body.data() + 4), PngNumber(body.data() + 8)};
  return absl::OkStatus();
}

// Columns [first, end) of a row of samples as RGB, `step` pixels apart.
void PngDecoder::State::Convert(const uint8_t* row, uint64_t first, uint64_t end, uint64_t step, uint8_t* out) const {
  const size_t sample_bytes = ihdr.bits / 8;
  step *= 3;
  if (ihdr.bits < 8) {
    const int mask = (1 << ihdr.bits) - 1;
    for (uint64_t x = first; x < end; ++x, out += step) {
      const size_t bit = x * ihdr.bits;
      std::memcpy(out, palette[row[bit / 8] >> (8 - ihdr.bits - bit % 8) & mask], 3);
    }
    return;
  }
  const size_t pixel_bytes = pixel_bits / 8;
  const uint8_t* const stop = row + end * pixel_bytes;
  row += first * pixel_bytes;
  if (ihdr.colour_type == kPalette || (ihdr.colour_type & kColour) == 0) {
    // Grey of 16 bits without alpha is Pillow's mode I;16, which convert("RGB") clips.
    const bool clip = ihdr.bits == 16 && ihdr.channels == 1;
    for (; row != stop; row += pixel_bytes, out += step) std::memcpy(out, palette[!clip ? row[0] : row[0] != 0 ? 255 : row[1]], 3);
  } else {
    for (; row != stop; row += pixel_bytes, out += step) {
      for (size_t i = 0; i < 3; ++i) out[i] = row[i * sample_bytes];
    }
  }
}

absl::Status PngDecoder::State::ReadRegion(const Rect& region, RgbImage* out) {
  const auto top = static_cast<uint64_t>(region.top), left = static_cast<uint64_t>(region.left);
  const uint64_t bottom = top + static_cast<uint64_t>(region.height), right = left + static_cast<uint64_t>(region.width);
  const uint64_t frame_bottom = frame.top + frame.height, frame_right = frame.left + frame.width;
  const Pass one = {frame.left, frame.top, 1, 1};
  const absl::Span<const Pass> passes = ihdr.interlaced ? absl::MakeConstSpan(kAdam7) : absl::MakeConstSpan(&one, 1);
  const uint64_t rows_end = ihdr.interlaced ? frame_bottom : std::min(frame_bottom, bottom);
  const auto row_bytes = [this](uint64_t columns) { return static_cast<size_t>((columns * pixel_bits + 7) / 8); };

  PngRows::Layout layout = {(pixel_bits + 7) / 8, row_bytes(frame.width), 0};
  for (const Pass& pass : passes) {
    const uint64_t columns = CountBelow(frame_right, pass.left, pass.x_step);
    if (columns > 0) layout.all_bytes += CountBelow(rows_end, pass.top, pass.y_step) * (1 + row_bytes(columns));
  }
  HEADRACE_RETURN_IF_ERROR(rows.Start(image_data, sequence, layout));

  const auto fill = [&](uint64_t first_row) {  // where no row reaches, samples are 0
    for (uint64_t y = first_row; y < bottom; ++y) {
      uint8_t* const to = out->row(static_cast<int>(y - top));
      for (size_t i = 0; i < out->stride(); ++i) to[i] = palette[0][i % 3];
    }
  };
  const bool filled = ihdr.interlaced || frame.width < ihdr.width || frame.height < ihdr.height;
  if (filled) fill(top);
  for (const Pass& pass : passes) {
    const uint64_t columns = CountBelow(frame_right, pass.left, pass.x_step);
    const uint64_t first = CountBelow(left, pass.left, pass.x_step);
    const uint64_t end = CountBelow(std::min(right, frame_right), pass.left, pass.x_step);
    rows.StartPass();
    for (uint64_t y = pass.top; columns > 0 && y < rows_end; y += pass.y_step) {
      HEADRACE_ASSIGN_OR_RETURN(const uint8_t* const row, rows.Next(row_bytes(columns)));
      if (row == nullptr) {
        if (!filled) fill(std::max(y, top));
        return absl::OkStatus();
      }
      if (y < top || y >= bottom || first >= end) continue;
      Convert(row, first, end, pass.x_step, out->row(static_cast<int>(y - top)) + 3 * (pass.left + first * pass.x_step - left));
    }
  }
  if (rows_end == frame_bottom) rows.CheckEnd();
  return absl::OkStatus();
}

PngDecoder::PngDecoder() : state_(std::make_unique<State>()) {}
PngDecoder::~PngDecoder() = default;

absl::Status PngDecoder::Decode(absl::Span<const uint8_t> bytes, const ImageInfo& info,
                                const Rect& region, RgbImage* out, std::string* warning) {
  State& state = *state_;
  HEADRACE_RETURN_IF_ERROR(state.Prepare(bytes));
  if (state.ihdr.width != info.width || state.ihdr.height != info.height) {
    return InvalidPng("the picture has another size than the index says");
  }
  out->Resize(region.width, region.height);  // not before the file has been found to be of the size that the index claims
  HEADRACE_RETURN_IF_ERROR(state.ReadRegion(region, out));
  if (warning != nullptr) *warning = state.rows.warning();
  return absl::OkStatus();
}

}  // namespace headrace
