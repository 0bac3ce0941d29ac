#include "core/decode/entry/entry_builder.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/decode/entry/canonical_codes.h"

namespace headrace {
namespace {

constexpr int kLookupBits = 11;
constexpr size_t kLookupSize = size_t{1} << kLookupBits;
// A block takes at most 64 × (16 + 15) bits, an MCU ten blocks: so far may reading go beyond an interval's end before the
// check behind each MCU finds it.
constexpr size_t kSlackBytes = 10 * 64 * 31 / 8 + 64;

absl::Status Flawed(const std::string& what) { return absl::InvalidArgumentError(what); }

// What a window of kLookupBits bits of AC codes says: as many symbols as its bits determine, extra bits included. The last
// symbol's extra bits may lie behind the window: their values do not matter here.
//   bits 0 … 5   bits consumed, at most kLookupBits + 15
//   bits 8 … 15  coefficients passed, at most 63 | 64 + those, when the last symbol ends the block (and counts as one) |
//                kLongCode: the first code is longer than the window, or none
using AcEntry = uint16_t;
constexpr uint32_t kLongCode = 255;
constexpr int kMaxAcBits = kLookupBits + 15;

struct AcTable {
  HuffmanSpec spec;
  CanonicalCodes codes;
  std::array<AcEntry, kLookupSize> lookup;

  void Build(const HuffmanSpec& new_spec) {
    if (spec == new_spec) return;
    spec = new_spec;
    codes.Build(spec);
    struct Symbol {
      uint8_t code_bits, bits, advance;  // code_bits 0: longer than the window
    };
    std::array<Symbol, kLookupSize> first = {};
    uint32_t at = 0;
    for (int bits = 1, index = 0; bits <= kLookupBits; ++bits) {
      for (int i = 0; i < spec.counts[bits - 1]; ++i, ++index) {
        const int size = spec.symbols[index] & 15, run = spec.symbols[index] >> 4;
        const int advance = size == 0 && run != 15 ? 64 + 1 : run + 1;
        const uint32_t entries = 1u << (kLookupBits - bits);
        std::fill_n(first.begin() + at, entries,
                    Symbol{static_cast<uint8_t>(bits), static_cast<uint8_t>(bits + size), static_cast<uint8_t>(advance)});
        at += entries;
      }
    }
    for (uint32_t window = 0; window < kLookupSize; ++window) {
      uint32_t bits = first[window].bits, advance = bits > 0 ? first[window].advance : kLongCode;
      while (bits < kLookupBits && advance < 64) {
        const Symbol next = first[(window << bits) & (kLookupSize - 1)];
        if (next.code_bits == 0 || bits + next.code_bits > kLookupBits || ((advance + next.advance) & 63) < advance) {
          break;
        }
        bits += next.bits;
        advance += next.advance;
      }
      lookup[window] = static_cast<AcEntry>(bits | advance << 8);
    }
  }
};

struct DcTable {
  HuffmanSpec spec;
  CanonicalCodes codes;
  std::array<uint16_t, 512> lookup;  // 9 bits → code bits << 8 | size; 0: longer

  void Build(const HuffmanSpec& new_spec) {
    if (spec == new_spec) return;
    spec = new_spec;
    codes.Build(spec);
    lookup.fill(0);
    uint32_t at = 0;
    for (int bits = 1, index = 0; bits <= 9; ++bits) {
      for (int i = 0; i < spec.counts[bits - 1]; ++i, ++index) {
        std::fill_n(lookup.begin() + at, 1u << (9 - bits), static_cast<uint16_t>(bits << 8 | spec.symbols[index]));
        at += 1u << (9 - bits);
      }
    }
  }
};

// The next bits of the data, left-aligned. Refilling does not lengthen the chain from one symbol to the next: the load does
// not wait for it (F. Giesen, "Reading bits in far too many ways", variant 4).
class BitReader {
 public:
  BitReader(const uint8_t* begin, uint64_t position) : begin_(begin), next_(begin + (position >> 3)) {
    Refill();
    Skip(position & 7);
  }

  // At least 56 bits are there afterwards.
  void Refill() {
    uint64_t word;
    std::memcpy(&word, next_, 8);
    bits_ |= __builtin_bswap64(word) >> count_;
    next_ += (63 - count_) >> 3;
    count_ |= 56;
  }
  uint64_t bits() const { return bits_; }
  void Skip(uint64_t n) {
    bits_ <<= n & 63;
    count_ -= n & 63;
  }
  uint64_t position() const { return static_cast<uint64_t>(next_ - begin_) * 8 - count_; }

 private:
  const uint8_t *begin_, *next_;
  uint64_t bits_ = 0, count_ = 0;
};

// Passes one symbol of any length. False for an undefined code or a block of more than 64 coefficients.
[[gnu::noinline]] bool SkipOneSymbol(const AcTable& table, BitReader* reader, uint32_t* k) {
  reader->Refill();
  uint8_t symbol;
  const int bits = table.codes.Decode(static_cast<uint32_t>(reader->bits() >> 48), &symbol);
  if (bits == 0) return false;
  const int size = symbol & 15, run = symbol >> 4;
  reader->Skip(static_cast<uint64_t>(bits + size));
  if (size == 0 && run != 15) {
    *k = 64;
    return true;
  }
  *k += static_cast<uint32_t>(run) + 1;
  return *k <= 64;
}

// Passes the 63 AC coefficients of a block. False as SkipOneSymbol.
inline bool SkipAc(const AcTable& table, BitReader* shared) {
  static_assert(2 * kMaxAcBits <= 56);
  BitReader reader = *shared;
  uint32_t k = 1;
  for (;;) {
    reader.Refill();
    uint32_t entry = table.lookup[reader.bits() >> (64 - kLookupBits)];
    if (k + (entry >> 8) < 64) {
      reader.Skip(entry);
      k += entry >> 8;
      entry = table.lookup[reader.bits() >> (64 - kLookupBits)];
      if (k + (entry >> 8) < 64) {
        reader.Skip(entry);
        k += entry >> 8;
        continue;
      }
    }
    // The block ends here, or the entry goes beyond its end, or its code is long.
    const uint32_t advance = entry >> 8;
    if (advance == kLongCode || k + (advance & 63) > 64) {
      if (!SkipOneSymbol(table, &reader, &k)) return false;
    } else {
      reader.Skip(entry);
      k = 64;
    }
    if (k < 64) continue;
    *shared = reader;
    return true;
  }
}

// The difference of a DC coefficient; false for an undefined code.
inline bool ReadDc(const DcTable& table, BitReader* reader, int* difference) {
  reader->Refill();
  const uint16_t entry = table.lookup[reader->bits() >> 55];
  int bits = entry >> 8, size = entry & 255;
  if (bits == 0) {
    uint8_t symbol;
    bits = table.codes.Decode(static_cast<uint32_t>(reader->bits() >> 48), &symbol);
    if (bits == 0) return false;
    size = symbol;
  }
  // Without a branch: the size changes from block to block.
  const uint64_t extra = reader->bits() << bits;
  const int value = static_cast<int>(extra >> 1 >> (63 - size));
  const int below = -static_cast<int>(~extra >> 63) & ((1 << size) - 1);
  *difference = value - below;
  reader->Skip(static_cast<uint64_t>(bits + size));
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
    uint32_t row_begin = 0;
    uint64_t end = intervals_[0].clean_end * 8, left = per_interval;
    BitReader reader(bytes, 0);
    std::array<int, 4> dc = {};
    for (int row = 0; row < rows; ++row) {
      for (int mcu = 0; mcu < per_row; ++mcu, --left) {
        if (left == 0) {
          if (end - reader.position() >= 8) return Flawed("bytes are left over before a restart marker");
          const Interval& next = intervals_[++interval_index];
          reader = BitReader(bytes, next.clean_begin * 8);
          end = next.clean_end * 8;
          left = per_interval;
          dc = {};
        }
        if (mcu % interval == 0) {
          AddPoint(reader.position(), dc, interval_index, &stuffed_index);
          const uint32_t byte = entries_.points.back().byte;
          if (mcu == 0) row_begin = byte;
          if (byte - row_begin > kMaxRowSpan) return Flawed("a row of MCUs that is too long");
        }
        for (int b = 0; b < num_blocks; ++b) {
          int difference;
          if (!ReadDc(*blocks[b].dc, &reader, &difference)) return Flawed("an undefined Huffman code");
          int& value = dc[blocks[b].component];
          value += difference;
          if (value < -2048 || value > 2047) return Flawed("a DC coefficient out of range");
          if (!SkipAc(*blocks[b].ac, &reader)) {
            return Flawed("an undefined Huffman code or a block of more than 64 coefficients");
          }
        }
        if (reader.position() > end) return Flawed("the data ends too early");
      }
    }
    if (end - reader.position() >= 8) return Flawed("bytes are left over behind the last block");
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
