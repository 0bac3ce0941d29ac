// JPEG files for tests, made and read with libjpeg itself.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace headrace::testing {

struct Sampling {
  std::string name;
  std::vector<int> h, v;  // per component: 1 (grey), 3 (YCbCr) or 4 (CMYK)

  int components() const { return static_cast<int>(h.size()); }
};

// Every combination that libjpeg decodes and that has its own path in it, common and odd ones.
const std::vector<Sampling>& AllSamplings();

enum class Process { kBaseline, kScanPerComponent, kProgressive, kArithmetic };

struct JpegOptions {
  int width = 16, height = 16;
  Sampling sampling;
  Process process = Process::kBaseline;
  int quality = 90;
  int restart_interval = 0;  // MCUs
  bool ycck = false;         // four components only
};

// A picture with noise, edges and slopes drawn from `random`.
std::vector<uint8_t> MakeJpeg(const JpegOptions& options, std::mt19937* random);

// The whole picture as RGB (grey replicated), or CMYK as it lies in the file for four components;
// libjpeg's defaults.
std::vector<uint8_t> DecodeWhole(const std::vector<uint8_t>& file);

// `file` with a segment (marker FF `marker`) right behind SOI.
std::vector<uint8_t> WithSegment(const std::vector<uint8_t>& file, uint8_t marker,
                                 const std::string& body);

}  // namespace headrace::testing
