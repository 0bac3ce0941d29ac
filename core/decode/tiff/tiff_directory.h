// What Pillow reads without and libtiff does not.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace headrace {

// A copy of a file with another first directory behind it: in order, and with a palette of the right size. If the file is not
// compressed, also up to the first entry that is cut off, without RowsPerStrip where that is 0, and with StripByteCounts or
// TileByteCounts where they are missing (they have the right type and number, but no meaning). Empty if there is nothing to mend.
std::vector<uint8_t> WithMendedDirectory(absl::Span<const uint8_t> bytes);

}  // namespace headrace
