// A check of entry data that shares nothing with its making: for `--check`.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/decode/jpeg/jpeg_coefficients.h"

namespace headrace {

// Decodes every segment of `file` on its own, from what `tables` and `entries` (EntryMaker) say and from no other byte than
// those up to EntryView::SegmentEnd, one symbol at a time. DATA_LOSS unless each ends at the next one's bit with its DC
// predictions, the last one at the end of the scan, and all coefficients are `expected`, libjpeg's.
absl::Status CheckEntries(absl::Span<const uint8_t> file, const std::string& tables, const std::string& entries,
                          const JpegCoefficients& expected);

}  // namespace headrace
