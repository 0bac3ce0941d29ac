// What must follow an image's entropy-coded data: for the CPU and the GPU.
#pragma once

#include <cstdint>

#include "core/base/host_device.h"

namespace headrace {

// EOI, perhaps behind fill bytes.
HEADRACE_GPU inline bool IsEnd(const uint8_t* bytes, uint64_t size) {
  uint64_t fill = 0;
  while (fill < size && bytes[fill] == 0xFF) ++fill;
  return fill > 0 && fill < size && bytes[fill] == 0xD9;
}

}  // namespace headrace
