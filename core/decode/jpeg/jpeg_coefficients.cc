#include "core/decode/jpeg/jpeg_coefficients.h"

#include <xxhash.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/decode/jpeg/libjpeg_errors.h"

namespace headrace {
namespace {

constexpr uint64_t kMaxCoefficientBytes = uint64_t{256} << 20;
constexpr int kMarkMarker = JPEG_APP0 + 15;
constexpr char kMarkName[] = "headrace";  // with its zero
constexpr uint8_t kMarkVersion = 1, kProgressive = 1, kArithmetic = 2, kSeveralScans = 4;

// libjpeg's destination that fills a vector.
struct Destination {
  jpeg_destination_mgr base;
  std::vector<uint8_t>* out;

  void Start(jpeg_compress_struct* cinfo, std::vector<uint8_t>* bytes, size_t expected) {
    out = bytes;
    out->resize(expected + 4096);
    base.next_output_byte = out->data();
    base.free_in_buffer = out->size();
    base.init_destination = [](j_compress_ptr) {};
    base.empty_output_buffer = [](j_compress_ptr c) {
      auto* self = reinterpret_cast<Destination*>(c->dest);
      const size_t full = self->out->size();  // libjpeg hands over the whole buffer, whatever is left in it
      self->out->resize(2 * full);
      self->base.next_output_byte = self->out->data() + full;
      self->base.free_in_buffer = full;
      return static_cast<boolean>(TRUE);
    };
    base.term_destination = [](j_compress_ptr c) {
      auto* self = reinterpret_cast<Destination*>(c->dest);
      self->out->resize(self->out->size() - self->base.free_in_buffer);
    };
    cinfo->dest = &base;
  }
};

void PutBigEndian(uint64_t value, uint8_t* at) {
  for (int i = 0; i < 8; ++i) at[i] = static_cast<uint8_t>(value >> (56 - 8 * i));
}

uint64_t CoefficientBytes(const jpeg_decompress_struct& cinfo) {
  uint64_t bytes = 0;
  for (int c = 0; c < cinfo.num_components; ++c) {
    const jpeg_component_info& component = cinfo.comp_info[c];
    bytes += uint64_t{component.width_in_blocks} * component.height_in_blocks * DCTSIZE2 * sizeof(JCOEF);
  }
  return bytes;
}

uint8_t ProcessOf(const jpeg_decompress_struct& cinfo) {
  return static_cast<uint8_t>((cinfo.progressive_mode ? kProgressive : 0) | (cinfo.arith_code ? kArithmetic : 0) |
                              (!cinfo.progressive_mode && cinfo.comps_in_scan < cinfo.num_components ? kSeveralScans : 0));
}

std::string NameOf(uint8_t process) {
  std::string name;
  if (process & kArithmetic) name = "arithmetic";
  if (process & kProgressive) absl::StrAppend(&name, name.empty() ? "" : ", ", "progressive");
  if (process & kSeveralScans) absl::StrAppend(&name, name.empty() ? "" : ", ", "several scans");
  return name;
}

size_t CountMarkers(const jpeg_decompress_struct& cinfo) {
  size_t count = 0;
  for (const jpeg_marker_struct* marker = cinfo.marker_list; marker != nullptr; marker = marker->next) ++count;
  return count;
}

}  // namespace

struct JpegTranscoder::State {
  jpeg_decompress_struct in;
  jpeg_compress_struct out;
  LibjpegErrors errors;
  ScanLimit limit;
  Destination destination;

  // What follows jumps out through errors.jump: no object with a destructor lives in these functions.
  void ReadHeader(absl::Span<const uint8_t> file);
  jvirt_barray_ptr* ReadAll();
  void Write(jvirt_barray_ptr* coefficients, const uint8_t* mark, unsigned mark_bytes);
  uint8_t Transcode(absl::Span<const uint8_t> file, std::vector<uint8_t>* bytes);
  bool Read(absl::Span<const uint8_t> file, JpegCoefficients* coefficients);
};

void JpegTranscoder::State::ReadHeader(absl::Span<const uint8_t> file) {
  jpeg_mem_src(&in, file.data(), file.size());
  jpeg_save_markers(&in, JPEG_COM, 0xFFFF);
  for (int i = 0; i < 16; ++i) jpeg_save_markers(&in, JPEG_APP0 + i, 0xFFFF);
  jpeg_read_header(&in, TRUE);
  limit.Watch(&in);
}

// Up to EOI.
jvirt_barray_ptr* JpegTranscoder::State::ReadAll() {
  jvirt_barray_ptr* coefficients = jpeg_read_coefficients(&in);
  if (errors.base.num_warnings > 0) errors.Fail(errors.warning);
  return coefficients;
}

void JpegTranscoder::State::Write(jvirt_barray_ptr* coefficients, const uint8_t* mark, unsigned mark_bytes) {
  jpeg_copy_critical_parameters(&in, &out);
  out.optimize_coding = TRUE;
  // The file's own markers are written instead; the components keep their ids, so their colours mean the same.
  out.write_JFIF_header = FALSE;
  out.write_Adobe_marker = FALSE;
  jpeg_write_coefficients(&out, coefficients);
  for (const jpeg_marker_struct* marker = in.marker_list; marker != nullptr; marker = marker->next) {
    jpeg_write_marker(&out, marker->marker, marker->data, marker->data_length);
  }
  jpeg_write_marker(&out, kMarkMarker, mark, mark_bytes);
  jpeg_finish_compress(&out);
}

// The file's process, or 0 when it stays as it is.
uint8_t JpegTranscoder::State::Transcode(absl::Span<const uint8_t> file, std::vector<uint8_t>* bytes) {
  in.err = out.err = errors.Start();
  in.mem = nullptr;
  out.mem = nullptr;
  if (setjmp(errors.jump) != 0) {
    jpeg_destroy_compress(&out);
    jpeg_destroy_decompress(&in);
    return 0;
  }
  jpeg_create_decompress(&in);
  jpeg_create_compress(&out);
  ReadHeader(file);
  const uint8_t process = ProcessOf(in);
  if (process == 0) errors.Fail("");
  if (CoefficientBytes(in) > kMaxCoefficientBytes) errors.Fail("too large");
  const size_t markers = CountMarkers(in);
  jvirt_barray_ptr* coefficients = ReadAll();
  if (LeavesBitsOpen(in)) errors.Fail("incomplete");
  // In front of the first scan it might mean something else.
  if (CountMarkers(in) != markers) errors.Fail("a marker between scans");

  uint8_t mark[sizeof kMarkName + 18];
  std::memcpy(mark, kMarkName, sizeof kMarkName);
  mark[sizeof kMarkName] = kMarkVersion;
  mark[sizeof kMarkName + 1] = process;
  PutBigEndian(file.size(), mark + sizeof kMarkName + 2);
  PutBigEndian(XXH3_64bits(file.data(), file.size()), mark + sizeof kMarkName + 10);
  destination.Start(&out, bytes, file.size());
  Write(coefficients, mark, sizeof mark);
  jpeg_destroy_compress(&out);
  jpeg_destroy_decompress(&in);
  return process;
}

bool JpegTranscoder::State::Read(absl::Span<const uint8_t> file, JpegCoefficients* coefficients) {
  in.err = errors.Start();
  if (setjmp(errors.jump) != 0) {
    jpeg_destroy_decompress(&in);
    return false;
  }
  jpeg_create_decompress(&in);
  ReadHeader(file);
  jvirt_barray_ptr* arrays = ReadAll();
  coefficients->components.resize(static_cast<size_t>(in.num_components));
  for (int c = 0; c < in.num_components; ++c) {
    const jpeg_component_info& info = in.comp_info[c];
    JpegCoefficients::Component& component = coefficients->components[static_cast<size_t>(c)];
    const auto up = [](JDIMENSION n, int factor) { return (static_cast<int>(n) + factor - 1) / factor * factor; };
    component.shown_blocks_per_row = static_cast<int>(info.width_in_blocks);
    component.shown_rows = static_cast<int>(info.height_in_blocks);
    component.blocks_per_row = up(info.width_in_blocks, info.h_samp_factor);
    component.rows = up(info.height_in_blocks, info.v_samp_factor);
    const size_t row_values = size_t{DCTSIZE2} * static_cast<size_t>(component.blocks_per_row);
    component.blocks.resize(row_values * static_cast<size_t>(component.rows));
    for (int row = 0; row < component.rows; ++row) {
      const JBLOCKARRAY blocks = in.mem->access_virt_barray(reinterpret_cast<j_common_ptr>(&in), arrays[c],
                                                            static_cast<JDIMENSION>(row), 1, FALSE);
      std::memcpy(&component.blocks[row_values * static_cast<size_t>(row)], blocks[0], row_values * sizeof(JCOEF));
    }
  }
  jpeg_destroy_decompress(&in);
  return true;
}

bool HaveSameBlocks(const JpegCoefficients& a, const JpegCoefficients& b) {
  if (a.components.size() != b.components.size()) return false;
  for (size_t c = 0; c < a.components.size(); ++c) {
    const JpegCoefficients::Component &x = a.components[c], &y = b.components[c];
    if (x.shown_blocks_per_row != y.shown_blocks_per_row || x.shown_rows != y.shown_rows) return false;
    for (int row = 0; row < x.shown_rows; ++row) {
      if (!std::equal(x.block(row, 0), x.block(row, x.shown_blocks_per_row - 1) + 64, y.block(row, 0))) return false;
    }
  }
  return true;
}

JpegTranscoder::JpegTranscoder() : state_(std::make_unique<State>()) {}
JpegTranscoder::~JpegTranscoder() = default;

std::string JpegTranscoder::Transcode(absl::Span<const uint8_t> file, std::vector<uint8_t>* out) {
  const uint8_t process = state_->Transcode(file, out);
  if (process == 0) out->clear();
  return NameOf(process);
}

absl::Status JpegTranscoder::Read(absl::Span<const uint8_t> file, JpegCoefficients* out) {
  if (state_->Read(file, out)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("JPEG: ", std::string(state_->errors.error)));
}

bool IsTranscodingMark(absl::Span<const uint8_t> app15) {
  return app15.size() > sizeof kMarkName && std::memcmp(app15.data(), kMarkName, sizeof kMarkName) == 0;
}

}  // namespace headrace
