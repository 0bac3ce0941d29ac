// The entry data of an image as the packer makes it.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "core/decode/entry/entry_builder.h"
#include "core/shard/dataset.h"

namespace headrace {

// One per thread; not thread-safe.
class EntryMaker {
 public:
  // Every `interval` MCUs (1 … kMaxEntryInterval); 0: never any.
  explicit EntryMaker(int interval) : interval_(interval) {}

  // Fills `tables` and `entries` for EntryArea::Append; both are empty when the image can have none or is not flawless
  // (EntryBuilder). `image`: what ProbeImage says of `file`.
  void Make(absl::Span<const uint8_t> file, const ImageInfo& image, std::string* tables, std::string* entries);

 private:
  const int interval_;
  EntryBuilder builder_;
};

}  // namespace headrace
