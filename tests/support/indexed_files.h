// JPEGs of every kind that can have entry points.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "tests/support/indexed_jpeg.h"
#include "tests/support/jpeg_maker.h"
#include "tests/support/scan_writer.h"
#include "tests/support/test_files.h"

namespace headrace::testing {

// MCUs from one entry point to the next that are tested.
inline constexpr int kEntryIntervals[] = {1, 4, 8, 32};

// All JPEGs that can have entry points: the test images, made ones of every sampling, and those with Huffman tables and coefficients of
// any shape.
inline const std::vector<std::vector<uint8_t>>& IndexedFiles() {
  static const auto* files = [] {
    auto* all = new std::vector<std::vector<uint8_t>>();
    IndexedJpeg probe;
    for (auto& file : FilesBelow(TestDataFolder())) {
      if (probe.Make(file, 8)) all->push_back(std::move(file));
    }
    std::mt19937 random(21);
    for (int i = 0; i < 8; ++i) {
      for (const Sampling& sampling : AllSamplings()) {
        JpegOptions options;
        options.sampling = sampling;
        options.width = 1 + static_cast<int>(random() % 200);
        options.height = 1 + static_cast<int>(random() % 200);
        options.quality = 20 + static_cast<int>(random() % 80);
        options.ycck = i % 2 == 1 && sampling.components() == 4;
        options.restart_interval = i % 3 == 0 ? 1 + static_cast<int>(random() % 12) : 0;
        auto file = MakeJpeg(options, &random);
        if (probe.Make(file, 8)) all->push_back(std::move(file));
      }
      ScanOptions scan;
      scan.width = 1 + static_cast<int>(random() % 200);
      scan.height = 1 + static_cast<int>(random() % 200);
      if (i % 4 > 0) scan.h = {1 + i % 2, 1, 1}, scan.v = {1 + i / 2 % 2, 1, 1};
      scan.restart_interval = i % 3 == 0 ? 1 + static_cast<int>(random() % 12) : 0;
      scan.many_ones = i % 2 == 0;
      auto file = WriteRandomScan(scan, &random);
      if (probe.Make(file, 8)) all->push_back(std::move(file));
    }
    return all;
  }();
  return *files;
}

}  // namespace headrace::testing
