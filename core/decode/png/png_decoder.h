// Regions of PNG files, with the pixels of Pillow 13's Image.open(…).convert("RGB").
#pragma once

#include <memory>
#include <string>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/decode/image.h"
#include "core/shard/dataset.h"

namespace headrace {

// One per decoding thread; not thread-safe. Keeps its buffers between calls.
class PngDecoder {
 public:
  PngDecoder();
  ~PngDecoder();

  // See ImageDecoder::Decode. Pillow's rules: alpha and tRNS are dropped, not blended; gAMA is
  // ignored; grey of 1, 2 and 4 bits is scaled to 0 … 255; of RGB with 16 bits the high byte
  // counts, but grey with 16 bits is **clipped** to 255; a palette index beyond the palette is
  // black; rows in front of which the image data end are 0. A wrong checksum is an error in front of the image data,
  // also in chunks that are not needed, and a warning in these. Rows below the region are not inflated, except in
  // interlaced files, which are decoded whole.
  absl::Status Decode(absl::Span<const uint8_t> bytes, const ImageInfo& info, const Rect& region,
                      RgbImage* out, std::string* warning);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace headrace
