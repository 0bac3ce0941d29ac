// JPEGs with their entry data, in memory, as a reader of a dataset has them; and the test images where they are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/base/file.h"
#include "core/decode/entry/entry_builder.h"
#include "core/decode/entry/entry_data.h"
#include "core/decode/image.h"
#include "core/decode/probe.h"

namespace headrace::testing {

struct IndexedJpeg {
  std::vector<uint8_t> file;
  ImageInfo info;
  std::string encoded;
  JpegFrame frame;  // with tables, from the encoded forms

  // False for what can have no entry points.
  bool Make(std::vector<uint8_t> bytes, int interval) {
    file = std::move(bytes);
    const auto probed = ProbeImage(file);
    const auto parsed = ParseJpegFrame(file);
    if (!probed.ok() || !parsed.ok()) return false;
    info = *probed;
    EntryBuilder builder;
    const auto points = builder.Build(file, *parsed, interval);
    if (!points.ok()) return false;
    encoded = EncodeEntries(*parsed, *points, 0);
    frame = View().frame();
    const std::string tables = EncodeTables(*parsed);
    return ApplyTables({reinterpret_cast<const uint8_t*>(tables.data()), tables.size()}, &frame).ok();
  }
  EntryView View() const {
    return *EntryView::Parse({reinterpret_cast<const uint8_t*>(encoded.data()), encoded.size()}, file.size());
  }
  Rect whole() const { return {0, 0, frame.height, frame.width}; }
};

// The test images' folder: $HEADRACE_TEST_DATA, or shared/data beside the sources; perhaps neither exists.
inline std::filesystem::path TestDataFolder() {
  const char* named = std::getenv("HEADRACE_TEST_DATA");
  if (named != nullptr) return named;
  return std::filesystem::path(__FILE__).parent_path().parent_path().parent_path().parent_path() / "shared" / "data";
}

// All files below `folder` of at most 4 MiB, in the order of their names.
inline std::vector<std::vector<uint8_t>> FilesBelow(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  if (std::filesystem::is_directory(folder)) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file()) paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::vector<uint8_t>> files;
  for (const auto& path : paths) {
    const auto bytes = ReadFile(path, 4 << 20);
    if (bytes.ok()) files.emplace_back(bytes->begin(), bytes->end());
  }
  return files;
}

}  // namespace headrace::testing
