// Writes baseline JPEGs coefficient by coefficient with Huffman tables of any shape, which no encoder does: to meet long codes,
// every size and run, full blocks, and 0xFF at any bit position.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <vector>

namespace headrace::testing {

struct ScanOptions {
  int width = 50, height = 40;  // px
  std::vector<int> h = {1}, v = {1};  // sampling factors per component
  int restart_interval = 0;     // MCUs
  int max_fill_bytes = 0;       // in front of each marker behind the scan's beginning
  bool many_ones = false;       // values of ones, so that 0xFF is common
  int longest_code = 16;        // of the tables, 8 … 16
};

// A file whose coefficients and tables are drawn from `random`. Legal: libjpeg reads it without a warning.
std::vector<uint8_t> WriteRandomScan(const ScanOptions& options, std::mt19937* random);

}  // namespace headrace::testing
