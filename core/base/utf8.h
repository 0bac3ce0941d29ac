// Texts that come from file systems and lists, where bytes may be anything.
#pragma once

#include <string>

namespace headrace {

// `bytes` as UTF-8: what is none becomes "\xNN".
std::string EscapeToUtf8(const std::string& bytes);

}  // namespace headrace
