// Internal to core.
#pragma once

#include <cstdint>

namespace headrace {

// libjpeg's choice for a component (jdsample.c, jinit_upsampler).
enum class Upsampling : uint8_t { kNone, kFancyH2V1, kFancyH2V2, kFancyH1V2, kReplicate };

}  // namespace headrace
