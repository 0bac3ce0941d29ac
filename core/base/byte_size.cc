#include "core/base/byte_size.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace headrace {

absl::StatusOr<uint64_t> ParseBytes(const std::string& text) {
  static constexpr std::pair<const char*, uint64_t> kUnits[] = {
      {"", 1},           {"b", 1},           {"kb", 1000},      {"mb", 1000000},    {"gb", 1000000000},
      {"tb", 1000000000000}, {"k", 1ull << 10}, {"m", 1ull << 20}, {"g", 1ull << 30}, {"t", 1ull << 40},
      {"kib", 1ull << 10}, {"mib", 1ull << 20}, {"gib", 1ull << 30}, {"tib", 1ull << 40}};
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string number = text.substr(0, digits);
  std::string written = text.substr(std::min(text.find_first_not_of(' ', digits), text.size()));
  std::transform(written.begin(), written.end(), written.begin(), [](unsigned char c) { return std::tolower(c); });
  const absl::Status wrong =
      absl::InvalidArgumentError(absl::StrCat("'", text, "' is no number of bytes (such as 1GiB, 512MB, 1048576)"));
  for (const auto& [unit, factor] : kUnits) {
    if (written != unit) continue;
    uint64_t whole = 0;  // doubles would round sizes above 2^53
    if (absl::SimpleAtoi(number, &whole)) {
      if (whole > UINT64_MAX / factor) return wrong;
      return whole * factor;
    }
    double value = 0;
    if (!absl::SimpleAtod(number, &value) || value * static_cast<double>(factor) >= 0x1p63) return wrong;
    return static_cast<uint64_t>(value * static_cast<double>(factor));
  }
  return wrong;
}

std::string FormatBytes(uint64_t bytes) {
  static constexpr std::pair<const char*, int> kUnits[] = {{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}};
  for (const auto& [unit, shift] : kUnits) {
    if (bytes != 0 && bytes % (1ull << shift) == 0) return absl::StrCat(bytes >> shift, unit);
  }
  return absl::StrCat(bytes);
}

}  // namespace headrace
