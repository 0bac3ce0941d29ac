// Sizes as people write them.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/status.h"

namespace headrace {

// "512MiB", "4 GiB", "1.5GB", "100000": bytes. B, kB, MB, GB, TB count by 1000; KiB … TiB and K, M, G, T by 1024; upper and
// lower case alike. INVALID_ARGUMENT otherwise.
absl::StatusOr<uint64_t> ParseBytes(const std::string& text);

// The shortest exact form: "4GiB", "100000".
std::string FormatBytes(uint64_t bytes);

}  // namespace headrace
