#include "tests/support/jpeg_maker.h"

// clang-format off: jpeglib.h needs FILE
#include <cstdio>
#include <jpeglib.h>
// clang-format on

#include <cstdlib>

namespace headrace::testing {
namespace {

// Scans of one component each; progressive: DC, low and high AC, each with one bit open, then the
// bits.
std::vector<jpeg_scan_info> Scans(int components, bool progressive) {
  std::vector<jpeg_scan_info> scans;
  const auto add = [&](int first, int last, int high, int low) {
    for (int i = 0; i < components; ++i) scans.push_back({1, {i, 0, 0, 0}, first, last, high, low});
  };
  if (!progressive) {
    add(0, 63, 0, 0);
  } else {
    add(0, 0, 0, 1);
    add(1, 5, 0, 1);
    add(6, 63, 0, 1);
    add(0, 0, 1, 0);
    add(1, 63, 1, 0);
  }
  return scans;
}

int BlocksPerMcu(const Sampling& sampling) {
  int blocks = 0;
  for (int i = 0; i < sampling.components(); ++i) blocks += sampling.h[i] * sampling.v[i];
  return blocks;
}

void FillRow(int y, int style, int channels, std::mt19937* random, std::vector<uint8_t>* row) {
  for (size_t i = 0; i < row->size(); ++i) {
    const int x = static_cast<int>(i) / channels, channel = static_cast<int>(i) % channels;
    int value;
    switch (style) {
      case 0:
        value = static_cast<int>((*random)() % 256);
        break;
      case 1:
        value = (x / 5 + y / 3) % 2 * 160 + 20 * channel + static_cast<int>((*random)() % 24);
        break;
      default:
        value = 40 + (x * (3 + channel) + y * 5) % 200;
        break;
    }
    (*row)[i] = static_cast<uint8_t>(value > 255 ? 255 : value);
  }
}

}  // namespace

const std::vector<Sampling>& AllSamplings() {
  static const std::vector<Sampling> samplings = {
      {"s444", {1, 1, 1}, {1, 1, 1}},
      {"s422", {2, 1, 1}, {1, 1, 1}},
      {"s420", {2, 1, 1}, {2, 1, 1}},
      {"s440", {1, 1, 1}, {2, 1, 1}},
      {"s411", {4, 1, 1}, {1, 1, 1}},
      {"s410", {4, 1, 1}, {2, 1, 1}},
      {"s441", {1, 1, 1}, {4, 1, 1}},
      {"s3x1", {3, 1, 1}, {1, 1, 1}},
      {"s1x3", {1, 1, 1}, {3, 1, 1}},
      {"s2x4_1x1_1x2", {2, 1, 1}, {4, 1, 2}},
      {"s2x2_1x2_2x1", {2, 1, 2}, {2, 2, 1}},
      {"s2x2_2x1_1x1", {2, 2, 1}, {2, 1, 1}},
      {"s2x2_everywhere", {2, 2, 2}, {2, 2, 2}},
      {"small_luma", {1, 2, 2}, {1, 2, 2}},
      {"small_luma_and_cb", {1, 1, 2}, {1, 1, 2}},
      {"s4_2_1", {4, 2, 1}, {1, 1, 1}},
      {"s4x4_2x2_2x1", {4, 2, 2}, {4, 2, 1}},
      {"s3x3_1x3_3x1", {3, 1, 3}, {3, 3, 1}},
      {"grey", {1}, {1}},
      {"grey_2x2", {2}, {2}},
      {"cmyk", {1, 1, 1, 1}, {1, 1, 1, 1}},
      {"cmyk_420", {2, 1, 1, 2}, {2, 1, 1, 2}},
  };
  return samplings;
}

std::vector<uint8_t> MakeJpeg(const JpegOptions& options, std::mt19937* random) {
  const int components = options.sampling.components();
  jpeg_compress_struct cinfo;
  jpeg_error_mgr errors;
  cinfo.err = jpeg_std_error(&errors);
  jpeg_create_compress(&cinfo);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&cinfo, &buffer, &size);
  cinfo.image_width = static_cast<JDIMENSION>(options.width);
  cinfo.image_height = static_cast<JDIMENSION>(options.height);
  cinfo.input_components = components;
  cinfo.in_color_space = components == 1 ? JCS_GRAYSCALE : components == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&cinfo);
  jpeg_set_quality(&cinfo, options.quality, TRUE);
  if (options.ycck) jpeg_set_colorspace(&cinfo, JCS_YCCK);
  for (int i = 0; i < components; ++i) {
    cinfo.comp_info[i].h_samp_factor = options.sampling.h[i];
    cinfo.comp_info[i].v_samp_factor = options.sampling.v[i];
  }
  std::vector<jpeg_scan_info> scans;
  const bool progressive = options.process == Process::kProgressive;
  // An interleaved scan may hold ten blocks per MCU.
  if (progressive || options.process == Process::kScanPerComponent ||
      BlocksPerMcu(options.sampling) > 10) {
    scans = Scans(components, progressive);
    cinfo.scan_info = scans.data();
    cinfo.num_scans = static_cast<int>(scans.size());
  }
  cinfo.arith_code = options.process == Process::kArithmetic;
  cinfo.restart_interval = static_cast<unsigned>(options.restart_interval);
  jpeg_start_compress(&cinfo, TRUE);
  std::vector<uint8_t> row(static_cast<size_t>(options.width) * static_cast<size_t>(components));
  const int style = static_cast<int>((*random)() % 3);
  for (int y = 0; y < options.height; ++y) {
    FillRow(y, style, components, random, &row);
    JSAMPROW pointer = row.data();
    jpeg_write_scanlines(&cinfo, &pointer, 1);
  }
  jpeg_finish_compress(&cinfo);
  std::vector<uint8_t> file(buffer, buffer + size);
  std::free(buffer);
  jpeg_destroy_compress(&cinfo);
  return file;
}

std::vector<uint8_t> DecodeWhole(const std::vector<uint8_t>& file) {
  jpeg_decompress_struct cinfo;
  jpeg_error_mgr errors;
  cinfo.err = jpeg_std_error(&errors);
  errors.emit_message = [](j_common_ptr, int) {};  // damaged files are decoded too
  jpeg_create_decompress(&cinfo);
  jpeg_mem_src(&cinfo, file.data(), file.size());
  jpeg_read_header(&cinfo, TRUE);
  cinfo.out_color_space = cinfo.num_components == 4 ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&cinfo);
  const size_t stride = size_t{cinfo.output_width} * static_cast<size_t>(cinfo.output_components);
  std::vector<uint8_t> pixels(stride * cinfo.output_height);
  while (cinfo.output_scanline < cinfo.output_height) {
    JSAMPROW row = pixels.data() + stride * cinfo.output_scanline;
    jpeg_read_scanlines(&cinfo, &row, 1);
  }
  jpeg_destroy_decompress(&cinfo);
  return pixels;
}

std::vector<uint8_t> WithSegment(const std::vector<uint8_t>& file, uint8_t marker,
                                 const std::string& body) {
  const size_t length = body.size() + 2;
  std::vector<uint8_t> result;
  result.reserve(file.size() + body.size() + 4);
  result.assign(file.begin(), file.begin() + 2);
  for (const size_t byte : {size_t{0xFF}, size_t{marker}, length >> 8, length & 0xFF}) {
    result.push_back(static_cast<uint8_t>(byte));
  }
  result.insert(result.end(), body.begin(), body.end());
  result.insert(result.end(), file.begin() + 2, file.end());
  return result;
}

}  // namespace headrace::testing
