// Canonical decoding of Huffman codes (T.81, F.2.2.3) with codes left-aligned in 16 bits, so that a length is found by comparing alone:
// for the CPU and the GPU.
#pragma once

#include <cstdint>

#include "core/base/host_device.h"

namespace headrace {

// From the number of codes of each length, 1 … 16, by length of a code: the first code that is longer, and from a code to its symbol.
template <class Counts, class Limits, class Offsets>
HEADRACE_GPU void FindCodeLimits(const Counts& counts, Limits& limit, Offsets& offset) {
  uint32_t code = 0;
  int32_t index = 0;
  for (int bits = 1; bits <= 16; ++bits) {
    offset[bits] = index - static_cast<int32_t>(code);
    code += counts[bits - 1];
    index += counts[bits - 1];
    limit[bits] = code << (16 - bits);
    code <<= 1;
  }
}

}  // namespace headrace
