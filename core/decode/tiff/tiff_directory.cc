#include "core/decode/tiff/tiff_directory.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

namespace headrace {
namespace {

constexpr uint64_t kCompression = 259, kStripOffsets = 273, kRowsPerStrip = 278, kStripByteCounts = 279, kTileOffsets = 324,
                   kTileByteCounts = 325, kBitsPerSample = 258, kColorMap = 320;
constexpr uint64_t kShort = 3, kNotCompressed = 1;

// Reads and writes numbers in the byte order of a file.
class Numbers {
 public:
  explicit Numbers(bool little_endian) : little_endian_(little_endian) {}
  uint64_t Get(const uint8_t* from, size_t size) const {
    uint64_t value = 0;
    for (size_t i = 0; i < size; ++i) value = value << 8 | from[little_endian_ ? size - 1 - i : i];
    return value;
  }
  void Put(uint64_t value, size_t size, uint8_t* to) const {
    for (size_t i = 0; i < size; ++i) to[little_endian_ ? i : size - 1 - i] = static_cast<uint8_t>(value >> 8 * i);
  }

 private:
  bool little_endian_;
};

// Of a value of a type, 0 if there is none such.
size_t TypeBytes(uint64_t type) {
  static constexpr uint8_t kBytes[] = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8};
  return type < std::size(kBytes) ? kBytes[type] : 0;
}

struct Entry {
  uint64_t tag, type, number, value;  // what the value's place holds: where it does not fit, its offset
};

class Directory {
 public:
  explicit Directory(absl::Span<const uint8_t> bytes)
      : numbers_(bytes[0] == 'I'), big_(numbers_.Get(bytes.data() + 2, 2) == 43), bytes_(bytes) {}

  // False if there is none, or nothing that Pillow would read of it.
  bool Read() {
    const uint64_t at = numbers_.Get(bytes_.data() + offset_bytes(), offset_bytes());
    if (at > bytes_.size() || bytes_.size() - at < count_bytes()) return false;
    const uint64_t count = numbers_.Get(bytes_.data() + at, count_bytes());
    absl::Span<const uint8_t> rest = bytes_.subspan(at + count_bytes());
    for (; entries_.size() < count && rest.size() >= entry_bytes(); rest.remove_prefix(entry_bytes())) {
      const uint8_t* const from = rest.data();
      const Entry entry = {numbers_.Get(from, 2), numbers_.Get(from + 2, 2), numbers_.Get(from + 4, offset_bytes()),
                           numbers_.Get(from + 4 + offset_bytes(), offset_bytes())};
      const size_t size = TypeBytes(entry.type);
      const bool fits = size == 0 || entry.number <= offset_bytes() / size;
      if (!fits && (entry.value > bytes_.size() || (bytes_.size() - entry.value) / size < entry.number)) break;
      entries_.push_back(entry);
    }
    is_mended_ = entries_.size() < count;
    return is_raw() || !is_mended_;
  }

  bool is_raw() {
    const auto compression = Find(kCompression);
    return compression == entries_.end() || Short(*compression) == kNotCompressed;
  }

  void MendRowsPerStrip() {
    const auto rows = Find(kRowsPerStrip);
    if (rows == entries_.end() || rows->value != 0) return;
    entries_.erase(rows);
    is_mended_ = true;
  }

  void MendLengths(uint64_t offsets, uint64_t lengths) {
    const auto from = Find(offsets);
    if (from == entries_.end() || Find(lengths) != entries_.end()) return;
    Entry copy = *from;
    copy.tag = lengths;
    entries_.push_back(copy);
    is_mended_ = true;
  }

  void MendColorMap() {
    const auto bits = Find(kBitsPerSample), map = Find(kColorMap);
    const uint64_t depth = bits == entries_.end() ? 1 : Short(*bits);
    if (map == entries_.end() || map->type != kShort || depth > 8) return;
    if (bits != entries_.end() && map->number == uint64_t{3} << depth) return;
    const uint64_t old_colours = map->number / 3, colours = uint64_t{1} << depth;
    palette_.assign(6 * colours, 0);
    if (map->number > offset_bytes() / 2) {
      for (uint64_t plane = 0; plane < 3; ++plane) {
        std::copy_n(bytes_.data() + map->value + 2 * plane * old_colours, 2 * std::min(old_colours, colours),
                    palette_.data() + 2 * plane * colours);
      }
    }
    map->number = 3 * colours;
    map->value = bytes_.size();
    is_mended_ = true;
    if (bits != entries_.end()) return;
    uint8_t place[8] = {};
    numbers_.Put(1, 2, place);
    entries_.push_back({kBitsPerSample, kShort, 1, numbers_.Get(place, offset_bytes())});
  }

  void Sort() {
    const auto before = [](const Entry& one, const Entry& other) { return one.tag < other.tag; };
    is_mended_ |= !std::is_sorted(entries_.begin(), entries_.end(), before);
    std::stable_sort(entries_.begin(), entries_.end(), before);
  }

  // The file with it behind its bytes, or nothing if there was nothing to mend.
  std::vector<uint8_t> Written() const {
    if (!is_mended_) return {};
    std::vector<uint8_t> file(bytes_.begin(), bytes_.end());
    file.insert(file.end(), palette_.begin(), palette_.end());
    const size_t start = file.size();
    file.resize(start + count_bytes() + entries_.size() * entry_bytes() + offset_bytes());
    numbers_.Put(start, offset_bytes(), file.data() + offset_bytes());  // the header has it there in both forms
    uint8_t* to = file.data() + start;
    numbers_.Put(entries_.size(), count_bytes(), to);
    to += count_bytes();
    for (const Entry& entry : entries_) {
      numbers_.Put(entry.tag, 2, to);
      numbers_.Put(entry.type, 2, to + 2);
      numbers_.Put(entry.number, offset_bytes(), to + 4);
      numbers_.Put(entry.value, offset_bytes(), to + 4 + offset_bytes());
      to += entry_bytes();
    }
    return file;
  }

 private:
  size_t count_bytes() const { return big_ ? 8 : 2; }
  size_t offset_bytes() const { return big_ ? 8 : 4; }
  size_t entry_bytes() const { return 4 + 2 * offset_bytes(); }
  std::vector<Entry>::iterator Find(uint64_t tag) {
    return std::find_if(entries_.begin(), entries_.end(), [tag](const Entry& entry) { return entry.tag == tag; });
  }
  // The first of numbers that begin in the value's place.
  uint64_t Short(const Entry& entry) const {
    uint8_t place[8];
    numbers_.Put(entry.value, offset_bytes(), place);
    return numbers_.Get(place, entry.type == kShort ? 2 : offset_bytes());
  }

  Numbers numbers_;
  bool big_, is_mended_ = false;
  absl::Span<const uint8_t> bytes_;
  std::vector<Entry> entries_;
  std::vector<uint8_t> palette_;  // comes behind the file
};

}  // namespace

std::vector<uint8_t> WithMendedDirectory(absl::Span<const uint8_t> bytes) {
  if (bytes.size() < 16) return {};
  Directory directory(bytes);
  if (!directory.Read()) return {};
  if (directory.is_raw()) {
    directory.MendRowsPerStrip();
    directory.MendLengths(kStripOffsets, kStripByteCounts);
    directory.MendLengths(kTileOffsets, kTileByteCounts);
  }
  directory.MendColorMap();
  directory.Sort();
  return directory.Written();
}

}  // namespace headrace
