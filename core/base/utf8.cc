#include "core/base/utf8.h"

#include <cstdint>

namespace headrace {

std::string EscapeToUtf8(const std::string& bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size();) {
    const auto lead = static_cast<unsigned char>(bytes[i]);
    const size_t length = lead < 0x80 ? 1 : lead >= 0xC2 && lead < 0xE0 ? 2 : lead >= 0xE0 && lead < 0xF0 ? 3
                          : lead >= 0xF0 && lead < 0xF5                 ? 4
                                                                        : 0;
    bool valid = length > 0 && i + length <= bytes.size();
    uint32_t code = length == 1 ? lead : lead & (0x7F >> length);
    for (size_t k = 1; valid && k < length; ++k) {
      const auto next = static_cast<unsigned char>(bytes[i + k]);
      valid = (next & 0xC0) == 0x80;
      code = code << 6 | (next & 0x3F);
    }
    // Neither overlong forms nor surrogates nor numbers above Unicode's last.
    valid = valid && (length < 3 || code >= (length == 3 ? 0x800u : 0x10000u)) && code <= 0x10FFFF &&
            !(code >= 0xD800 && code < 0xE000);
    if (valid) {
      out.append(bytes, i, length);
      i += length;
    } else {
      static constexpr char kDigits[] = "0123456789abcdef";
      out += {'\\', 'x', kDigits[lead >> 4], kDigits[lead & 15]};
      ++i;
    }
  }
  return out;
}

}  // namespace headrace
