#include "core/decode/exif.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string_view>

namespace headrace {
namespace {

constexpr uint16_t kOrientationTag = 274;
constexpr size_t kEntryBytes = 12;

enum TiffType : uint16_t {
  kByte = 1,
  kAscii = 2,
  kShort = 3,
  kLong = 4,
  kRational = 5,
  kSignedByte = 6,
  kUndefined = 7,
  kSignedShort = 8,
  kSignedLong = 9,
  kSignedRational = 10,
  kFloat = 11,
  kDouble = 12,
  kIfd = 13,
  kLong8 = 16,
};

// Bytes of one value; 0 for types that Pillow skips.
uint64_t UnitBytes(uint16_t type) {
  switch (type) {
    case kByte:
    case kAscii:
    case kSignedByte:
    case kUndefined:
      return 1;
    case kShort:
    case kSignedShort:
      return 2;
    case kLong:
    case kSignedLong:
    case kFloat:
    case kIfd:
      return 4;
    case kRational:
    case kSignedRational:
    case kDouble:
    case kLong8:
      return 8;
    default:
      return 0;
  }
}

// Numbers in the block's byte order. The caller checks the bounds.
class Numbers {
 public:
  Numbers(absl::Span<const uint8_t> bytes, bool little_endian)
      : bytes_(bytes), little_endian_(little_endian) {}
  size_t size() const { return bytes_.size(); }
  const uint8_t* data() const { return bytes_.data(); }

  uint64_t Get(size_t offset, int count) const {
    uint64_t value = 0;
    for (int i = 0; i < count; ++i) {
      const int at = little_endian_ ? count - 1 - i : i;
      value = value << 8 | bytes_[offset + static_cast<size_t>(at)];
    }
    return value;
  }
  uint16_t U16(size_t offset) const { return static_cast<uint16_t>(Get(offset, 2)); }
  uint32_t U32(size_t offset) const { return static_cast<uint32_t>(Get(offset, 4)); }

 private:
  absl::Span<const uint8_t> bytes_;
  bool little_endian_;
};

// The first value of an entry as a whole number, if it is one.
std::optional<int64_t> WholeNumber(const Numbers& block, size_t offset, uint16_t type) {
  const auto whole = [](double value) -> std::optional<int64_t> {
    if (!(value >= 1 && value <= 8) || value != static_cast<int>(value)) return std::nullopt;
    return static_cast<int64_t>(value);
  };
  const auto ratio = [](int64_t numerator, int64_t denominator) -> std::optional<int64_t> {
    if (denominator == 0 || numerator % denominator != 0) return std::nullopt;
    return numerator / denominator;
  };
  switch (type) {
    case kShort:
      return block.U16(offset);
    case kSignedShort:
      return static_cast<int16_t>(block.U16(offset));
    case kSignedByte:
      return static_cast<int8_t>(block.Get(offset, 1));
    case kLong:
    case kIfd:
      return block.U32(offset);
    case kSignedLong:
      return static_cast<int32_t>(block.U32(offset));
    case kLong8:
      return static_cast<int64_t>(std::min(block.Get(offset, 8), uint64_t{9}));
    case kRational:
      return ratio(block.U32(offset), block.U32(offset + 4));
    case kSignedRational:
      return ratio(static_cast<int32_t>(block.U32(offset)),
                   static_cast<int32_t>(block.U32(offset + 4)));
    case kFloat:
      return whole(std::bit_cast<float>(block.U32(offset)));
    case kDouble:
      return whole(std::bit_cast<double>(block.Get(offset, 8)));
    default:
      return std::nullopt;  // text and bytes: exif_transpose finds them in no table
  }
}

// Walks one directory as Pillow does: it ends at the first entry that is cut off or whose value is,
// and skips what is empty, of an unknown type, or claims more than the whole block.
int OrientationInDirectory(const Numbers& block, size_t at) {
  if (block.size() < 2 || at > block.size() - 2) return 0;
  const uint16_t count = block.U16(at);
  at += 2;
  uint64_t claimed_bytes = 0;
  for (uint16_t i = 0; i < count; ++i, at += kEntryBytes) {
    if (block.size() - at < kEntryBytes) return 0;
    const uint16_t tag = block.U16(at);
    const uint16_t type = block.U16(at + 2);
    const uint64_t bytes = UnitBytes(type) * block.U32(at + 4);
    if (bytes == 0) continue;
    size_t value_at = at + 8;
    if (bytes > 4) {
      claimed_bytes += bytes;
      if (claimed_bytes > block.size()) continue;
      value_at = block.U32(at + 8);
      if (value_at > block.size() || bytes > block.size() - value_at) return 0;
    }
    if (tag != kOrientationTag) continue;
    const int64_t value = WholeNumber(block, value_at, type).value_or(1);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 0;
}

}  // namespace

int ExifOrientation(absl::Span<const uint8_t> block) {
  static constexpr uint8_t kPrefix[] = {'E', 'x', 'i', 'f', 0, 0};
  for (int i = 0; i < 2; ++i) {
    if (block.size() < sizeof(kPrefix) || std::memcmp(block.data(), kPrefix, sizeof(kPrefix)) != 0)
      break;
    block.remove_prefix(sizeof(kPrefix));
  }
  if (block.empty()) return 0;
  if (block.size() < 8) return 1;
  const bool little_endian = block[0] == 'I' && block[1] == 'I';
  const bool big_endian = block[0] == 'M' && block[1] == 'M';
  // Pillow takes the 42 in either order behind either mark, and a big-endian BigTIFF's head for a
  // classic one.
  const bool version = (block[2] == 42 && block[3] == 0) || (block[2] == 0 && block[3] == 42) ||
                       (big_endian && block[2] == 0 && block[3] == 43);
  if ((!little_endian && !big_endian) || !version) return 1;
  const Numbers numbers(block, little_endian);
  return OrientationInDirectory(numbers, numbers.U32(4));
}

int XmpOrientation(absl::Span<const uint8_t> packet) {
  const std::string_view text(reinterpret_cast<const char*>(packet.data()), packet.size());
  constexpr std::string_view kName = "tiff:Orientation";
  for (size_t at = text.find(kName); at != std::string_view::npos; at = text.find(kName, at + 1)) {
    std::string_view rest = text.substr(at + kName.size());
    if (rest.starts_with("=\"")) {
      rest.remove_prefix(2);
    } else if (rest.starts_with(">")) {
      rest.remove_prefix(1);
    } else {
      continue;
    }
    if (rest.empty() || rest[0] < '0' || rest[0] > '9') continue;
    const int value = rest[0] - '0';
    return value >= 1 && value <= 8 ? value : 1;
  }
  return 1;
}

}  // namespace headrace
