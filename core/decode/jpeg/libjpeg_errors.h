// libjpeg's errors and warnings as data, and a bound on its work. Included only inside this folder.
#pragma once

// clang-format off: jpeglib.h needs FILE
#include <cstdio>
#include <jpeglib.h>
// clang-format on

#include <algorithm>
#include <csetjmp>
#include <cstdint>

namespace headrace {

// Functions between setjmp on `jump` and libjpeg's error must hold no object with a destructor.
struct LibjpegErrors {
  jpeg_error_mgr base;
  jmp_buf jump;
  char error[JMSG_LENGTH_MAX];
  char warning[JMSG_LENGTH_MAX];  // the first one, or ""

  // For cinfo->err.
  jpeg_error_mgr* Start() {
    jpeg_std_error(&base);
    base.error_exit = &OnError;
    base.emit_message = &OnMessage;
    base.output_message = [](j_common_ptr) {};
    error[0] = warning[0] = '\0';
    return &base;
  }

  [[noreturn]] void Fail(const char* reason) {
    std::snprintf(error, sizeof error, "%s", reason);
    longjmp(jump, 1);
  }

 private:
  static LibjpegErrors* Of(j_common_ptr cinfo) { return reinterpret_cast<LibjpegErrors*>(cinfo->err); }

  [[noreturn]] static void OnError(j_common_ptr cinfo) {
    cinfo->err->format_message(cinfo, Of(cinfo)->error);
    longjmp(Of(cinfo)->jump, 1);
  }

  // Warnings (level < 0) and traces. Only the first warning is formatted: damaged files give thousands.
  static void OnMessage(j_common_ptr cinfo, int level) {
    if (level >= 0) return;
    if (cinfo->err->num_warnings++ == 0) cinfo->err->format_message(cinfo, Of(cinfo)->warning);
  }
};

// A progressive file can hold thousands of scans in a few bytes, and each costs a pass over the whole picture.
struct ScanLimit {
  static constexpr int kMaxScans = 500;
  static constexpr uint64_t kMaxScannedPixels = uint64_t{4} << 30;  // 24 scans of the largest picture

  jpeg_progress_mgr base;
  int max_scans;

  // Makes libjpeg fail at too many scans. The header has been read.
  void Watch(jpeg_decompress_struct* cinfo) {
    base.progress_monitor = &OnProgress;
    max_scans = static_cast<int>(
        std::min<uint64_t>(kMaxScans, kMaxScannedPixels / (uint64_t{cinfo->image_width} * cinfo->image_height)));
    cinfo->progress = &base;
  }

 private:
  static void OnProgress(j_common_ptr common) {
    auto* cinfo = reinterpret_cast<j_decompress_ptr>(common);
    if (cinfo->input_scan_number > reinterpret_cast<ScanLimit*>(common->progress)->max_scans) {
      reinterpret_cast<LibjpegErrors*>(common->err)->Fail("too many scans");
    }
  }
};

// libjpeg-turbo smooths the blocks of a progressive picture whose scans leave low bits of coefficients open.
inline bool LeavesBitsOpen(const jpeg_decompress_struct& cinfo) {
  if (!cinfo.progressive_mode || cinfo.coef_bits == nullptr) return false;
  for (int component = 0; component < cinfo.num_components; ++component) {
    for (int i = 0; i < DCTSIZE2; ++i) {
      if (cinfo.coef_bits[component][i] != 0) return true;
    }
  }
  return false;
}

}  // namespace headrace
