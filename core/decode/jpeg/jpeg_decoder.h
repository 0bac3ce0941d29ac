// Regions of JPEG files through libjpeg-turbo's classic API (TurboJPEG's refuses legal files and
// makes every warning an error).
#pragma once

#include <memory>
#include <string>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/decode/image.h"
#include "core/shard/dataset.h"

namespace headrace {

// One per decoding thread; not thread-safe. Keeps its row buffer between calls.
class JpegDecoder {
 public:
  JpegDecoder();
  ~JpegDecoder();

  // See ImageDecoder::Decode. Work is bounded: at most 500 scans, and fewer for large pictures.
  absl::Status Decode(absl::Span<const uint8_t> bytes, const ImageInfo& info, const Rect& region,
                      RgbImage* out, std::string* warning);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace headrace
