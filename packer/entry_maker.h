// What the packer makes of a JPEG: the same picture in one scan, and its entry data.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/decode/entry/entry_builder.h"
#include "core/decode/jpeg/jpeg_coefficients.h"
#include "core/shard/dataset.h"

namespace headrace {

struct EntryMakerOptions {
  int interval = kDefaultEntryInterval;  // MCUs per entry point, 1 … kMaxEntryInterval; 0: no entry data
  bool check = false;                    // compare everything with libjpeg's coefficients
};

// One per thread; not thread-safe.
class EntryMaker {
 public:
  // `large` is held while the coefficients of a picture above 4 megapixels are in memory: one at a time for all makers.
  EntryMaker(const EntryMakerOptions& options, std::mutex* large) : options_(options), large_(large) {}

  // What `file` was when `out` has been filled with the same picture in one scan (JpegTranscoder), and `image` with what
  // ProbeImage says of it; "" when the file is to be packed as it is. `image`: ProbeImage of `file`.
  std::string Transcode(absl::Span<const uint8_t> file, ImageInfo* image, std::vector<uint8_t>* out);

  // Fills `tables` and `entries` for EntryArea::Append; both are empty when the image can have none, or is not flawless
  // (EntryBuilder). DATA_LOSS, and empty: `check` found another picture in them than libjpeg's.
  absl::Status Make(absl::Span<const uint8_t> file, const ImageInfo& image, std::string* tables, std::string* entries);

 private:
  std::unique_lock<std::mutex> LockIfLarge(const ImageInfo& image);

  const EntryMakerOptions options_;
  std::mutex* const large_;
  EntryBuilder builder_;
  JpegTranscoder transcoder_;
};

}  // namespace headrace
