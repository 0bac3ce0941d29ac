#include "core/decode/jpeg/jpeg_decoder.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/decode/cmyk.h"
#include "core/decode/jpeg/libjpeg_errors.h"

namespace headrace {
namespace {

// Rows that one call of jpeg_read_scanlines may fill: a row group at most (4), so more would not
// help.
constexpr int kRowsPerCall = 4;

// libjpeg turns its fancy upsampling off for components of at most two columns. A crop must not
// become so narrow that this happens to it and not to the whole picture: 8 columns are 4 of a
// halved component. With one guard column but without this, 22 of 19,800 random crops differed (by
// up to 69 of 255), with it none.
constexpr int kMinCropPx = 8;
constexpr int kGuardPx = 1;

}  // namespace

struct JpegDecoder::State {
  jpeg_decompress_struct cinfo;
  LibjpegErrors errors;
  ScanLimit limit;
  std::vector<uint8_t> rows;  // kRowsPerCall rows as libjpeg gives them
  bool has_rows;              // all that are wanted

  // What follows jumps out through errors.jump: no object with a destructor lives in these
  // functions.
  void Start(absl::Span<const uint8_t> bytes, const ImageInfo& info);
  void ReadRegion(const Rect& region, RgbImage* out);
  bool Run(absl::Span<const uint8_t> bytes, const ImageInfo& info, const Rect& region,
           RgbImage* out);
};

void JpegDecoder::State::Start(absl::Span<const uint8_t> bytes, const ImageInfo& info) {
  jpeg_mem_src(&cinfo, bytes.data(), bytes.size());
  jpeg_read_header(&cinfo, TRUE);
  if (cinfo.image_width != info.width || cinfo.image_height != info.height ||
      cinfo.num_components != info.components) {
    errors.Fail("the picture has another size than the index says");
  }
  limit.Watch(&cinfo);
  // The defaults otherwise, as Pillow: accurate integer IDCT, fancy upsampling, block smoothing.
  cinfo.out_color_space = cinfo.num_components == 4 ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&cinfo);
}

// Crops to iMCU columns and skips from row 0, which leaves every pixel as in a full decode; then
// stops below the region, so that the bytes behind are not touched. Measured over 22 samplings,
// baseline and progressive, sizes to 200 px: tests/decode/jpeg_decoder_test.cc repeats it.
void JpegDecoder::State::ReadRegion(const Rect& region, RgbImage* out) {
  JDIMENSION first_column = 0;
  int first_row = 0;
  // Smoothing looks at neighbouring blocks and must see the same as in a full decode.
  if (!(cinfo.do_block_smoothing && LeavesBitsOpen(cinfo))) {
    const int image_width = static_cast<int>(cinfo.output_width);
    int left = std::max(region.left - kGuardPx, 0);
    int right = std::min(region.left + region.width + kGuardPx, image_width);
    right = std::min(std::max(right, left + kMinCropPx), image_width);
    left = std::max(std::min(left, right - kMinCropPx), 0);
    if (right - left < image_width) {
      first_column = static_cast<JDIMENSION>(left);
      JDIMENSION width = static_cast<JDIMENSION>(right - left);
      jpeg_crop_scanline(&cinfo, &first_column, &width);
    }
    if (region.top > 0) jpeg_skip_scanlines(&cinfo, static_cast<JDIMENSION>(region.top));
    first_row = region.top;
  }

  const int channels = cinfo.output_components;
  const size_t row_bytes = size_t{cinfo.output_width} * static_cast<size_t>(channels);
  const size_t skipped_bytes =
      (static_cast<size_t>(region.left) - first_column) * static_cast<size_t>(channels);
  const bool in_place =
      channels == 3 && cinfo.output_width == static_cast<JDIMENSION>(region.width);
  if (!in_place || first_row < region.top) rows.resize(row_bytes * kRowsPerCall);
  JSAMPROW pointers[kRowsPerCall];
  const int end = region.top + region.height;
  for (int y = first_row; y < end;) {
    const int wanted = std::min(kRowsPerCall, end - y);
    for (int i = 0; i < wanted; ++i) {
      const bool direct = in_place && y + i >= region.top;
      pointers[i] =
          direct ? out->row(y + i - region.top) : rows.data() + row_bytes * static_cast<size_t>(i);
    }
    const int got =
        static_cast<int>(jpeg_read_scanlines(&cinfo, pointers, static_cast<JDIMENSION>(wanted)));
    if (!in_place) {
      for (int i = std::max(0, region.top - y); i < got; ++i) {
        const uint8_t* from = pointers[i] + skipped_bytes;
        uint8_t* to = out->row(y + i - region.top);
        if (channels == 4)
          CmykToRgb(from, region.width, to);
        else
          std::memcpy(to, from, out->stride());
      }
    }
    y += got;
  }
  // What is wrong with the end of the file shows only here: extraneous bytes, a missing EOI, a
  // stray frame header.
  has_rows = true;
  if (end == static_cast<int>(cinfo.output_height)) jpeg_finish_decompress(&cinfo);
}

bool JpegDecoder::State::Run(absl::Span<const uint8_t> bytes, const ImageInfo& info,
                             const Rect& region, RgbImage* out) {
  has_rows = false;
  if (setjmp(errors.jump) != 0) {
    // Behind the bytes libjpeg reads an end marker of its own, and may take it for part of a header.
    const bool only_cut_off = has_rows && cinfo.src->next_input_byte + cinfo.src->bytes_in_buffer != bytes.data() + bytes.size();
    jpeg_destroy_decompress(&cinfo);
    return only_cut_off;
  }
  // A new object each time (a dozen small allocations): an old one would keep the tables of the
  // last file, and lend them to a file that has none.
  jpeg_create_decompress(&cinfo);
  Start(bytes, info);
  out->Resize(region.width, region.height);  // not before the file has been found to be of the size that the index claims
  ReadRegion(region, out);
  jpeg_destroy_decompress(&cinfo);
  return true;
}

JpegDecoder::JpegDecoder() : state_(std::make_unique<State>()) {}
JpegDecoder::~JpegDecoder() = default;

absl::Status JpegDecoder::Decode(absl::Span<const uint8_t> bytes, const ImageInfo& info,
                                 const Rect& region, RgbImage* out, std::string* warning) {
  State& state = *state_;
  state.cinfo.err = state.errors.Start();
  if (!state.Run(bytes, info, region, out)) {
    return absl::InvalidArgumentError(absl::StrCat("JPEG: ", std::string(state.errors.error)));
  }
  if (warning != nullptr) *warning = state.errors.warning;
  return absl::OkStatus();
}

}  // namespace headrace
