// JPEGs with their entry data, in memory, as a reader of a dataset has them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

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

}  // namespace headrace::testing
