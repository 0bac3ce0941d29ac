#include "core/decode/png/png_decoder.h"

#include <png.h>

#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"

namespace headrace {
namespace {

constexpr size_t kMessageBytes = 200;
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

}  // namespace

struct PngDecoder::State {
  absl::Span<const uint8_t> rest;  // bytes that libpng has not asked for yet
  jmp_buf jump;
  char error[kMessageBytes];
  char warning[kMessageBytes];
  png_structp png = nullptr;
  png_infop png_info = nullptr;
  Palette palette;
  std::vector<uint8_t> pixels;  // one row, or the whole picture if it is interlaced

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
    if (size > state->rest.size()) png_error(png, "the file is cut off");
    std::memcpy(data, state->rest.data(), size);
    state->rest.remove_prefix(size);
  }

  // What follows jumps out through `jump`: no object with a destructor lives in these functions.
  Layout Start(const ImageInfo& info);
  void ReadRegion(const Layout& layout, const ImageInfo& info, const Rect& region, RgbImage* out);
  bool Run(const ImageInfo& info, const Rect& region, RgbImage* out);
};

Layout PngDecoder::State::Start(const ImageInfo& info) {
  png_set_read_fn(png, this, &OnRead);
  png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
  // Nothing but IHDR, PLTE and IDAT has a say in the pixels; the picture's size was bounded by the
  // probe.
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_set_user_limits(png, 0x7fffffff, 0x7fffffff);
  png_read_info(png, png_info);
  if (png_get_image_width(png, png_info) != info.width ||
      png_get_image_height(png, png_info) != info.height) {
    png_error(png, "the picture has another size than the index says");
  }
  const int bits = png_get_bit_depth(png, png_info);
  Layout layout;
  layout.colour_type = png_get_color_type(png, png_info);
  layout.bits = bits == 16 ? 16 : 8;
  layout.channels = png_get_channels(png, png_info);
  layout.scale = bits < 8 ? 255 / ((1 << bits) - 1) : 1;
  std::memset(palette, 0, sizeof(palette));
  png_colorp colours = nullptr;
  int count = 0;
  if (layout.colour_type == PNG_COLOR_TYPE_PALETTE &&
      png_get_PLTE(png, png_info, &colours, &count) != 0) {
    for (int i = 0; i < count; ++i) {
      palette[i][0] = colours[i].red;
      palette[i][1] = colours[i].green;
      palette[i][2] = colours[i].blue;
    }
  }
  png_set_packing(png);
  return layout;
}

void PngDecoder::State::ReadRegion(const Layout& layout, const ImageInfo& info, const Rect& region,
                                   RgbImage* out) {
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, png_info);
  const size_t row_bytes = png_get_rowbytes(png, png_info);
  const int end = region.top + region.height;
  if (passes == 1) {
    pixels.resize(row_bytes);
    for (int y = 0; y < end; ++y) {
      png_read_row(png, pixels.data(), nullptr);
      if (y >= region.top) {
        ConvertRow(pixels.data(), layout, palette, region.left, region.width,
                   out->row(y - region.top));
      }
    }
    return;
  }
  pixels.resize(row_bytes * info.height);
  for (int pass = 0; pass < passes; ++pass) {
    for (size_t y = 0; y < info.height; ++y)
      png_read_row(png, pixels.data() + y * row_bytes, nullptr);
  }
  for (int y = region.top; y < end; ++y) {
    ConvertRow(pixels.data() + static_cast<size_t>(y) * row_bytes, layout, palette, region.left,
               region.width, out->row(y - region.top));
  }
}

bool PngDecoder::State::Run(const ImageInfo& info, const Rect& region, RgbImage* out) {
  if (setjmp(jump) != 0) {
    png_destroy_read_struct(&png, &png_info, nullptr);
    return false;
  }
  png = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &OnError, &OnWarning);
  if (png == nullptr) return false;
  png_info = png_create_info_struct(png);
  if (png_info == nullptr) png_error(png, "out of memory");
  const Layout layout = Start(info);
  out->Resize(region.width, region.height);  // not before the file has been found to be of the size that the index claims
  ReadRegion(layout, info, region, out);
  png_destroy_read_struct(&png, &png_info, nullptr);
  return true;
}

PngDecoder::PngDecoder() : state_(std::make_unique<State>()) {}
PngDecoder::~PngDecoder() = default;

absl::Status PngDecoder::Decode(absl::Span<const uint8_t> bytes, const ImageInfo& info,
                                const Rect& region, RgbImage* out, std::string* warning) {
  State& state = *state_;
  state.rest = bytes;
  state.error[0] = state.warning[0] = '\0';
  if (!state.Run(info, region, out)) {
    return absl::InvalidArgumentError(absl::StrCat("PNG: ", std::string(state.error)));
  }
  if (warning != nullptr) *warning = state.warning;
  return absl::OkStatus();
}

}  // namespace headrace
