#include "core/decode/entry/entry_builder.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace headrace {
namespace {

constexpr int kLookupBits = 11;
constexpr size_t kLookupSize = size_t{1} << kLookupBits;
// A block takes at most 64 × (16 + 15) bits, an MCU ten blocks: so far may reading go beyond an interval's end before the
// check behind each MCU finds it.
constexpr size_t kSlackBytes = 10 * 64 * 31 / 8 + 64;

absl::Status Flawed(const std::string& what) { return absl::InvalidArgumentError(what); }

// Canonical decoding of one code of up to 16 bits, for what the look-up tables do not hold.
struct CodeTable {
  std::array<uint32_t, 17> limit;  // first code (left-aligned in 16 bits) that is longer than l bits
  std::array<int32_t, 17> offset;
  const uint8_t* symbols;

  void Build(const HuffmanSpec& spec) {
    uint32_t code = 0;
    int32_t first = 0;
    for (int bits = 1; bits <= 16; ++bits) {
      offset[bits] = first - static_cast<int32_t>(code);
      code += spec.counts[bits - 1];
      first += spec.counts[bits - 1];
      limit[bits] = code << (16 - bits);
      code <<= 1;
    }
    symbols = spec.symbols.data();
  }
  // Bits of the code at the head of `window`, 0 if there is no such code.
  int Decode(uint32_t head16, uint8_t* symbol) const {
    for (int bits = 1; bits <= 16; ++bits) {
      if (head16 < limit[bits]) {
        *symbol = symbols[(head16 >> (16 - bits)) + offset[bits]];
        return bits;
      }
    }
    return 0;
  }
};

// What a window of kLookupBits bits of AC codes holds: as many whole symbols, extra bits included, as fit.
struct AcEntry {
  uint8_t bits = 0;     // consumed; 0: not even one symbol fits
  uint8_t advance = 0;  // coefficients passed; an end of block counts one
  uint8_t ends = 0;     // 1: the last symbol is an end of block
  uint8_t unused = 0;
};

struct AcTable {
  HuffmanSpec spec;
  CodeTable codes;
  std::array<AcEntry, kLookupSize> lookup;

  void Build(const HuffmanSpec& new_spec) {
    if (spec == new_spec) return;  // most photos share the standard's tables
    spec = new_spec;
    codes.Build(spec);
    std::array<AcEntry, kLookupSize> single = {};
    uint32_t code = 0;
    int index = 0;
    for (int bits = 1; bits <= kLookupBits; ++bits) {
      for (int i = 0; i < spec.counts[bits - 1]; ++i, ++code, ++index) {
        const int size = spec.symbols[index] & 15, run = spec.symbols[index] >> 4;
        if (bits + size > kLookupBits) continue;
        const bool ends = size == 0 && run != 15;
        const AcEntry entry = {static_cast<uint8_t>(bits + size), static_cast<uint8_t>(ends ? 1 : run + 1), ends, 0};
        std::fill_n(single.begin() + (size_t{code} << (kLookupBits - bits)), size_t{1} << (kLookupBits - bits), entry);
      }
      code <<= 1;
    }
    for (size_t window = 0; window < kLookupSize; ++window) {
      AcEntry sum = single[window];
      while (sum.bits > 0 && !sum.ends) {
        const AcEntry& next = single[(window << sum.bits) & (kLookupSize - 1)];
        if (next.bits == 0 || sum.bits + next.bits > kLookupBits || sum.advance + next.advance > 64) break;
        sum = {static_cast<uint8_t>(sum.bits + next.bits), static_cast<uint8_t>(sum.advance + next.advance), next.ends, 0};
      }
      lookup[window] = sum;
    }
  }
};

struct DcTable {
  HuffmanSpec spec;
  CodeTable codes;
  std::array<uint16_t, 512> lookup;  // 9 bits → code bits << 8 | size; 0: longer

  void Build(const HuffmanSpec& new_spec) {
    if (spec == new_spec) return;
    spec = new_spec;
    codes.Build(spec);
    lookup.fill(0);
    uint32_t code = 0;
    int index = 0;
    for (int bits = 1; bits <= 9; ++bits) {
      for (int i = 0; i < spec.counts[bits - 1]; ++i, ++code, ++index) {
        std::fill_n(lookup.begin() + (size_t{code} << (9 - bits)), size_t{1} << (9 - bits),
                    static_cast<uint16_t>(bits << 8 | spec.symbols[index]));
      }
      code <<= 1;
    }
  }
};

// 64 bits from bit position `position`, the first 57 of them valid.
inline uint64_t Window(const uint8_t* bytes, uint64_t position) {
  uint64_t word;
  std::memcpy(&word, bytes + (position >> 3), 8);
  return __builtin_bswap64(word) << (position & 7);
}

// Passes the 63 AC coefficients of a block. Returns the new bit position, or 0 for an undefined code or an overrun.
inline uint64_t SkipAc(const AcTable& table, const uint8_t* bytes, uint64_t position) {
  uint32_t k = 1;
  for (;;) {
    uint64_t window = Window(bytes, position);
    for (int step = 0; step < 5; ++step) {  // 5 × 11 bits of 57
      const AcEntry entry = table.lookup[window >> (64 - kLookupBits)];
      if (entry.bits == 0 || k + entry.advance > 64) goto one_symbol;
      k += entry.advance;
      position += entry.bits;
      window <<= entry.bits;
      if (entry.ends || k == 64) return position;
    }
    continue;
  one_symbol:
    uint8_t symbol;
    const int bits = table.codes.Decode(Window(bytes, position) >> 48, &symbol);
    if (bits == 0) return 0;
    const int size = symbol & 15, run = symbol >> 4;
    position += bits + size;
    if (size == 0 && run != 15) return position;
    k += run + 1;
    if (k > 64) return 0;
    if (k == 64) return position;
  }
}

// The difference of a DC coefficient; false for an undefined code.
inline bool ReadDc(const DcTable& table, const uint8_t* bytes, uint64_t* position, int* difference) {
  const uint64_t window = Window(bytes, *position);
  int bits = table.lookup[window >> 55] >> 8;
  int size = table.lookup[window >> 55] & 255;
  if (bits == 0) {
    uint8_t symbol;
    bits = table.codes.Decode(window >> 48, &symbol);
    if (bits == 0) return false;
    size = symbol;
  }
  *position += bits + size;
  *difference = 0;
  if (size > 0) {
    const int extra = static_cast<int>((window << bits) >> (64 - size));
    *difference = extra >= 1 << (size - 1) ? extra : extra - (1 << size) + 1;
  }
  return true;
}

}  // namespace

class EntryBuilder::Impl {
 public:
  absl::StatusOr<EntryPoints> Build(absl::Span<const uint8_t> file, const JpegFrame& frame, int interval) {
    entries_.interval = interval;
    entries_.points.clear();
    HEADRACE_RETURN_IF_ERROR(Unstuff(file.subspan(frame.scan_offset), frame));
    for (int i = 0; i < 4; ++i) {
      if (frame.dc_mask >> i & 1) dc_[i].Build(frame.dc[i]);
      if (frame.ac_mask >> i & 1) ac_[i].Build(frame.ac[i]);
    }
    HEADRACE_RETURN_IF_ERROR(Walk(frame));
    return entries_;
  }

 private:
  // One restart interval: where it begins, in the clean bytes and in the file's.
  struct Interval {
    uint64_t clean_begin, clean_end;
    uint32_t stuffed_begin;
  };

  // Fills clean_ (the data without stuffing and markers), stuffed_ (clean positions of the bytes 0xFF that were followed
  // by a stuffed zero) and intervals_.
  absl::Status Unstuff(absl::Span<const uint8_t> scan, const JpegFrame& frame) {
    clean_.resize(scan.size() + kSlackBytes);
    stuffed_.clear();
    intervals_.clear();
    uint8_t* out = clean_.data();
    const uint8_t *in = scan.data(), *const end = in + scan.size();
    Interval current = {0, 0, 0};
    for (;;) {
      const auto* ff = static_cast<const uint8_t*>(std::memchr(in, 0xFF, end - in));
      if (ff == nullptr || ff + 1 == end) return Flawed("the scan has no end");
      std::memcpy(out, in, ff - in);
      out += ff - in;
      in = ff + 1;
      if (*in == 0) {
        stuffed_.push_back(static_cast<uint32_t>(out - clean_.data()));
        *out++ = 0xFF;
        ++in;
        continue;
      }
      while (in < end && *in == 0xFF) ++in;  // fill bytes before a marker
      if (in == end) return Flawed("the scan has no end");
      const uint8_t marker = *in++;
      if (marker == 0) return Flawed("fill bytes inside the data");
      current.clean_end = out - clean_.data();
      intervals_.push_back(current);
      if (marker >= 0xD0 && marker <= 0xD7) {
        if (frame.restart_interval == 0 || (marker & 7) != ((intervals_.size() - 1) & 7)) {
          return Flawed("a restart marker out of place");
        }
        current = {current.clean_end, 0, static_cast<uint32_t>(in - scan.data())};
        continue;
      }
      if (marker != 0xD9) return Flawed(absl::StrCat("marker ", marker, " behind the scan"));
      entries_.scan_bytes = static_cast<uint32_t>(ff - scan.data());
      std::memset(out, 0, clean_.data() + clean_.size() - out);
      return absl::OkStatus();
    }
  }

  absl::Status Walk(const JpegFrame& frame) {
    const int per_row = frame.mcus_per_row(), rows = frame.mcu_rows(), interval = entries_.interval;
    const uint64_t total = uint64_t{static_cast<uint32_t>(per_row)} * rows;
    const uint64_t per_interval = frame.restart_interval ? frame.restart_interval : total;
    if ((total + per_interval - 1) / per_interval != intervals_.size()) return Flawed("restart markers are missing");
    entries_.points.reserve(size_t{static_cast<uint32_t>(rows)} * ((per_row + interval - 1) / interval));

    struct Block {
      const DcTable* dc;
      const AcTable* ac;
      int component;
    };
    std::array<Block, 10> blocks;
    int num_blocks = 0;
    for (int c = 0; c < frame.num_components; ++c) {
      const JpegComponent& component = frame.components[c];
      for (int i = 0; i < component.h * component.v; ++i) {
        blocks[num_blocks++] = {&dc_[component.dc], &ac_[component.ac], c};
      }
    }

    const uint8_t* bytes = clean_.data();
    size_t interval_index = 0, stuffed_index = 0;
    uint64_t position = 0, end = intervals_[0].clean_end * 8, left = per_interval;
    std::array<int, 4> dc = {};
    for (int row = 0; row < rows; ++row) {
      for (int mcu = 0; mcu < per_row; ++mcu, --left) {
        if (left == 0) {
          if (end - position >= 8) return Flawed("bytes are left over before a restart marker");
          const Interval& next = intervals_[++interval_index];
          position = next.clean_begin * 8;
          end = next.clean_end * 8;
          left = per_interval;
          dc = {};
        }
        if (mcu % interval == 0) AddPoint(position, dc, interval_index, &stuffed_index);
        for (int b = 0; b < num_blocks; ++b) {
          int difference;
          if (!ReadDc(*blocks[b].dc, bytes, &position, &difference)) return Flawed("an undefined Huffman code");
          int& value = dc[blocks[b].component];
          value += difference;
          if (value < -2048 || value > 2047) return Flawed("a DC coefficient out of range");
          position = SkipAc(*blocks[b].ac, bytes, position);
          if (position == 0) return Flawed("an undefined Huffman code or a block of more than 64 coefficients");
        }
        if (position > end) return Flawed("the data ends too early");
      }
    }
    if (end - position >= 8) return Flawed("bytes are left over behind the last block");
    return absl::OkStatus();
  }

  void AddPoint(uint64_t position, const std::array<int, 4>& dc, size_t interval, size_t* stuffed_index) {
    const Interval& current = intervals_[interval];
    const uint64_t clean = position >> 3;
    while (*stuffed_index < stuffed_.size() && stuffed_[*stuffed_index] < clean) ++*stuffed_index;
    // Stuffed zeros between the interval's beginning and here.
    const auto first = std::lower_bound(stuffed_.begin(), stuffed_.begin() + *stuffed_index, current.clean_begin);
    EntryPoint point;
    point.byte = static_cast<uint32_t>(current.stuffed_begin + (clean - current.clean_begin) +
                                       (stuffed_.begin() + *stuffed_index - first));
    point.bit = position & 7;
    for (int c = 0; c < 4; ++c) point.dc[c] = static_cast<int16_t>(dc[c]);
    entries_.points.push_back(point);
  }

  std::vector<uint8_t> clean_;
  std::vector<uint32_t> stuffed_;
  std::vector<Interval> intervals_;
  std::array<DcTable, 4> dc_;
  std::array<AcTable, 4> ac_;
  EntryPoints entries_;
};

EntryBuilder::EntryBuilder() : impl_(std::make_unique<Impl>()) {}
EntryBuilder::~EntryBuilder() = default;

absl::StatusOr<EntryPoints> EntryBuilder::Build(absl::Span<const uint8_t> file, const JpegFrame& frame, int interval) {
  return impl_->Build(file, frame, interval);
}

}  // namespace headrace
