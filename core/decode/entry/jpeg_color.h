#pragma once

#include <cstdint>

namespace headrace {

// What a JPEG's three or four channels mean, by libjpeg's rules (jdapimin.c, default_decompress_parms).
enum class JpegColor : uint8_t { kGrey = 0, kYCbCr = 1, kRgb = 2, kCmyk = 3, kYcck = 4 };

}  // namespace headrace
