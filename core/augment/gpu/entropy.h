// From entry points to coefficients: what one thread does with one segment. The rules are those of core/decode/segment/segment_runs.cc.
// Internal to core/augment/gpu.
#pragma once

#include <cstdint>

#include "core/augment/gpu/burst.h"
#include "core/augment/gpu/machine.h"
#include "core/base/host_device.h"
#include "core/decode/entry/code_limits.h"
#include "core/decode/entry/end_marker.h"
#include "core/decode/entry/entry_word.h"

namespace headrace::gpu {

// The MCUs of one segment that one thread decodes. Bytes are of the image's data.
struct Run {
  uint32_t begin, end;             // of the segment, the byte with the next entry point included
  uint32_t next;                   // the byte with the next entry point, if there is one
  uint32_t words;                  // where its bytes go without what is stuffed
  uint32_t row, mcu;
  uint32_t count, decoded;         // MCUs of the segment, and how many of them are needed
  uint8_t bit, next_bit;
  bool has_next;
  int16_t dc[kMaxComponents], next_dc[kMaxComponents];
};

HEADRACE_GPU inline const uint8_t* DataOf(const Burst& burst, const Image& image) {
  return image.is_mapped ? reinterpret_cast<const uint8_t*>(image.bytes) : burst.staged + image.bytes;
}

// Whether what follows the entropy-coded data is the image's end, if its last row is needed.
HEADRACE_GPU inline bool EndsAsItMust(const Burst& burst, const Image& image) {
  return image.end_bytes == 0 || IsEnd(DataOf(burst, image) + image.end, image.end_bytes);
}

// Run `index` of the image. False when its entries contradict each other: then it is an empty one at the burst's first word.
HEADRACE_GPU inline bool MakeRun(const Burst& burst, const Image& image, uint32_t index, Run* run) {
  const uint32_t line = index / image.runs_per_row, place = index % image.runs_per_row;
  const uint32_t segment = image.first_segment + place;
  const Row& row = burst.rows[image.rows + line];
  const uint64_t* entry = burst.entries + image.entries + (line * image.segments_per_row + segment) * image.words_per_entry;
  const uint64_t* next = entry + image.words_per_entry;
  const bool row_ends = segment + 1 == image.segments_per_row;
  run->row = image.first_row + line;
  run->has_next = !row_ends || run->row + 1 < image.mcu_rows;
  run->mcu = segment * image.interval;
  run->count = Min(image.interval, image.mcus_per_row - run->mcu);
  run->decoded = Min(run->count, image.last_mcu + 1 - run->mcu);
  const uint32_t begin = row.base + EntryByte(entry[0]);
  const uint32_t next_byte = run->has_next ? (row_ends ? row.next_base : row.base) + EntryByte(next[0]) : image.scan_bytes;
  const uint32_t end = Min(next_byte + run->has_next, image.scan_bytes);
  const uint32_t first = burst.rows[image.rows].begin;
  run->words = row.words + (begin - row.begin) / 4 + 3 * place;
  run->begin = begin - first;
  run->end = end - first;
  run->next = next_byte - first;
  run->bit = EntryBit(entry[0]);
  run->next_bit = EntryBit(next[0]);
  for (int c = 0; c < 3; ++c) {
    run->dc[c] = EntryDc(entry[0], c);
    run->next_dc[c] = EntryDc(next[0], c);
  }
  run->dc[3] = image.words_per_entry == 2 ? SignedDc(entry[1]) : int16_t{0};
  run->next_dc[3] = image.words_per_entry == 2 ? SignedDc(next[1]) : int16_t{0};
  // Every symbol takes at most 31 bits and passes a coefficient; core/decode/segment reads no more either.
  const bool agrees =
      row.begin <= begin && begin <= end && end <= row.end && next_byte <= image.scan_bytes && end - begin <= image.max_run_bytes;
  if (!agrees) run->begin = run->end = run->words = 0;
  return agrees;
}

// Of the `size` (0 … 4) bytes of `word` those that are not stuffed behind 0xFF, packed; returns how many. `previous`: the byte
// before. Sets *marker when there is one.
HEADRACE_GPU inline uint32_t UnstuffWord(uint32_t word, uint32_t size, uint32_t previous, uint32_t* packed, bool* marker) {
  uint32_t kept = 0;
  *packed = 0;
  for (uint32_t i = 0; i < size; ++i) {
    const uint32_t byte = word >> (8 * i) & 0xFF;
    *marker |= previous == 0xFF && byte != 0;
    if (previous != 0xFF || byte != 0) *packed |= byte << (8 * kept++);
    previous = byte;
  }
  return kept;
}

// The bits of a part of a scan as it lies in the file: zeros behind the first marker or the end. For images with restart markers.
class FileReader {
 public:
  HEADRACE_GPU FileReader(const uint8_t* data, uint32_t begin, uint32_t end, uint32_t bit)
      : data_(data), begin_(begin), at_(begin), end_(end) {
    Refill();
    bits_ -= static_cast<int>(bit);
  }

  // The next 32 bits.
  HEADRACE_GPU uint32_t Window() {
    if (bits_ < 32) Refill();
    return static_cast<uint32_t>(buffer_ >> (bits_ - 32));
  }
  // At most 31.
  HEADRACE_GPU void Skip(uint32_t bits) { bits_ -= static_cast<int>(bits); }

  // Whether the next bit is one of the data.
  HEADRACE_GPU bool IsInside() const { return bits_ >= invented_; }
  // The byte that holds the next bit, and that bit's number in it.
  HEADRACE_GPU void Tell(uint32_t* byte, uint32_t* bit) const {
    uint32_t at = at_;
    int left = bits_ - invented_;
    for (; left > 0; left -= 8) {
      --at;
      if (at > begin_ && data_[at] == 0 && data_[at - 1] == 0xFF) --at;
    }
    *byte = at;
    *bit = static_cast<uint32_t>(-left);
  }
  // Passes what is left before the first marker or the end, and returns how many bits that was.
  HEADRACE_GPU uint32_t PassRest() {
    uint32_t passed = static_cast<uint32_t>(bits_ - invented_);
    while (!IsAtStop()) {
      Pass();
      passed += 8;
    }
    return passed;
  }
  HEADRACE_GPU uint32_t at() const { return at_; }

 private:
  HEADRACE_GPU void Refill() {
    while (bits_ <= 32) {
      for (int i = 0; i < 4; ++i) buffer_ = buffer_ << 8 | NextByte();
      bits_ += 32;
    }
  }
  HEADRACE_GPU bool IsAtStop() const {
    return at_ >= end_ || (data_[at_] == 0xFF && at_ + 1 < end_ && data_[at_ + 1] != 0);
  }
  HEADRACE_GPU uint8_t Pass() {
    const uint8_t byte = data_[at_];
    at_ += byte == 0xFF && at_ + 1 < end_ ? 2 : 1;
    return byte;
  }
  HEADRACE_GPU uint32_t NextByte() {
    if (!IsAtStop()) return Pass();
    invented_ += 8;
    return 0;
  }

  const uint8_t* data_;
  uint32_t begin_, at_, end_;
  uint64_t buffer_ = 0;
  int bits_ = 0, invented_ = 0;  // unread in the buffer; those of them that stand behind the data
};

// The bits of a segment without the zeros stuffed behind 0xFF, as Unstuff left them; zeros behind the limit.
class WordReader {
 public:
  HEADRACE_GPU WordReader(const uint32_t* words, uint32_t num_words, uint32_t bit)
      : words_(words), num_words_(num_words), high_(Swap(Word(0))), low_(Swap(Word(1))), used_(bit) {
    ahead_[0] = Word(2);
    ahead_[1] = Word(3);
  }

  HEADRACE_GPU uint32_t Window() const { return ShiftPair(high_, low_, used_); }
  HEADRACE_GPU void Skip(uint32_t bits) {
    used_ += bits;
    if (used_ < 32) return;
    used_ -= 32;
    high_ = low_;
    low_ = Swap(ahead_[0]);
    ahead_[0] = ahead_[1];
    ahead_[1] = Word(++first_ + 3);
  }
  // Bits from the first word on.
  HEADRACE_GPU uint32_t Tell() const { return first_ * 32 + used_; }

 private:
  HEADRACE_GPU static uint32_t Swap(uint32_t word) { return PickBytes(word, 0, 0x0123); }
  HEADRACE_GPU uint32_t Word(uint32_t i) const { return i < num_words_ ? Load(words_ + i) : 0; }

  const uint32_t* words_;
  uint32_t num_words_, first_ = 0;
  uint32_t high_, low_, used_;
  uint32_t ahead_[2];  // as they lie in memory: nobody waits for them yet
};

// The code, longer than `shorter` bits, that `head`'s 16 bits begin with: its length << 8 | symbol; 0: there is none.
HEADRACE_GPU inline uint32_t FindCode(const HuffmanCodes& codes, uint32_t head, int shorter) {
  uint32_t bits = static_cast<uint32_t>(shorter) + 1;
  HEADRACE_UNROLL
  for (int longer = shorter + 1; longer <= 16; ++longer) bits += head >= codes.limit[longer];
  if (bits > 16) return 0;
  const uint32_t index = (head >> (16 - bits)) + static_cast<uint32_t>(codes.offset[bits]);
  return bits << 8 | codes.symbols[index & 255];
}

// A thread's share of it.
HEADRACE_GPU inline void MakeCodes(const HuffmanSymbols& spec, uint32_t thread, uint32_t threads, HuffmanCodes* codes) {
  if (thread == 0) FindCodeLimits(spec.counts, codes->limit, codes->offset);
  for (uint32_t i = thread; i < 256; i += threads) codes->symbols[i] = spec.symbols[i];
}

// Entry `i` of the table's look-up.
HEADRACE_GPU inline uint16_t LookupEntry(const HuffmanCodes& codes, uint32_t i) {
  const uint32_t code = FindCode(codes, i << (16 - kLookupBits), 0);
  return code >> 8 <= kLookupBits ? static_cast<uint16_t>(code) : uint16_t{0};
}

// What the threads of a block share.
struct Shared {
  Image image;
  // Block n of an MCU: MCU m of row r, counted from the first row that is held, has it at coefficients' block
  // first + r · row_blocks + m · mcu_blocks.
  struct alignas(16) Place {
    uint32_t first, row_blocks, mcu_blocks;
    uint32_t component;  // UINT32_MAX: behind the last
    uint32_t dc, ac;     // bytes from the first table
    uint32_t unused[2];
  } places[kMaxBlocksPerMcu + 1];
  uint8_t natural[64];
  HuffmanTable tables[kMaxTables];  // the last: on a GPU there are as many as the burst's images need
};

HEADRACE_GPU inline void FillPlaces(Shared* shared) {
  const Image& image = shared->image;
  Shared::Place* next = shared->places;
  for (uint32_t c = 0; c < image.num_components; ++c) {
    const Component& component = image.components[c];
    for (uint32_t y = 0; y < component.v; ++y) {
      for (uint32_t x = 0; x < component.h; ++x) {
        constexpr uint32_t kBytes = sizeof(HuffmanTable);
        *next++ = {component.coefficients + y * component.blocks_per_row + x - image.first_mcu * component.h,
                   component.v * component.blocks_per_row, component.h, c, component.dc * kBytes, component.ac * kBytes, {}};
      }
    }
  }
  next->component = UINT32_MAX;
}

// DC predictions of four components, 16 bits each: in two registers, which an array with a changing index is not.
class Predictions {
 public:
  HEADRACE_GPU explicit Predictions(const int16_t* dc)
      : low_(static_cast<uint16_t>(dc[0]) | static_cast<uint32_t>(static_cast<uint16_t>(dc[1])) << 16),
        high_(static_cast<uint16_t>(dc[2]) | static_cast<uint32_t>(static_cast<uint16_t>(dc[3])) << 16) {}
  HEADRACE_GPU int16_t Add(uint32_t c, int difference) {
    const uint32_t sum = static_cast<uint16_t>(Get(c) + difference);
    // Bytes 4 and 5 of the pair (register, sum) take the place of the old value.
    const uint32_t both = c % 2 == 0 ? 0x3254 : 0x5410;
    if (c < 2) {
      low_ = PickBytes(low_, sum, both);
    } else {
      high_ = PickBytes(high_, sum, both);
    }
    return static_cast<int16_t>(sum);
  }
  HEADRACE_GPU int16_t Get(uint32_t c) const { return static_cast<int16_t>(PickBytes(low_, high_, 0x10 + 0x22 * c)); }
  HEADRACE_GPU void Reset() { low_ = high_ = 0; }

 private:
  uint32_t low_, high_;
};

enum Outcome { kGoesOn, kDone, kDamaged };

// One thread's way through MCUs, a symbol a turn.
template <class Reader>
class Walk {
 public:
  HEADRACE_GPU Walk(const Burst& burst, const Shared& shared, const Run& run, const Reader& reader)
      : shared_(shared), coefficients_(burst.coefficients), row_(run.row - shared.image.first_row), dc_(run.dc), reader_(reader) {}

  // MCUs [mcu, end) of the row.
  HEADRACE_GPU void Begin(uint32_t mcu, uint32_t end) {
    mcu_ = mcu;
    end_ = end;
    number_ = 0;
    BeginBlock();
  }

  // The next symbol; kDone behind the last. No loop in here, and no way out before the end: the 32 threads of a warp, whose blocks
  // differ in length, must meet again behind every symbol.
  HEADRACE_GPU Outcome Step() {
    const uint32_t window = reader_.Window();
    uint32_t code = table_->lookup[window >> (32 - kLookupBits)];
    if (code == 0) code = FindCode(table_->codes, window >> 16, kLookupBits);
    const uint32_t size = code & 15, run = code >> 4 & 15, bits = code >> 8;
    const uint32_t extra = window << bits;
    int value = static_cast<int>(extra >> 1 >> (31 - size));
    if (static_cast<int>(extra) >= 0) value -= (1 << size) - 1;
    reader_.Skip(bits + size);
    bool damaged = code == 0;
    uint32_t at = k_ + run;
    if (k_ == 0) {
      value = dc_.Add(component_, value);
      table_ = ac_table_;
      at = 0;
      k_ = 1;
    } else if (size == 0) {
      at = 64;
      k_ = run == 15 ? k_ + 16 : 64;
      damaged |= k_ > 64;
    } else {
      damaged |= at > 63;
      k_ = at + 1;
    }
    if (at < kept_) block_[shared_.natural[at]] = static_cast<int16_t>(value);
    if (damaged) return kDamaged;
    if (k_ < 64) return kGoesOn;
    if (shared_.places[++number_].component == UINT32_MAX) {
      number_ = 0;
      if (++mcu_ == end_) return kDone;
    }
    BeginBlock();
    return kGoesOn;
  }

  HEADRACE_GPU Reader& reader() { return reader_; }
  HEADRACE_GPU Predictions& dc() { return dc_; }

 private:
  HEADRACE_GPU void BeginBlock() {
    // Two wide loads, not six: some thread of a warp begins a block nearly every turn.
    const Shared::Place& place = shared_.places[number_];
    uint32_t where[4], tables[2];
    LoadFour(&place.first, where);
    LoadTwo(&place.dc, tables);
    component_ = where[3];
    const char* first_table = reinterpret_cast<const char*>(shared_.tables);
    table_ = reinterpret_cast<const HuffmanTable*>(first_table + tables[0]);
    ac_table_ = reinterpret_cast<const HuffmanTable*>(first_table + tables[1]);
    block_ = coefficients_ + uint64_t{where[0] + row_ * where[1] + mcu_ * where[2]} * 64;
    kept_ = mcu_ >= shared_.image.first_mcu ? 64 : 0;
    k_ = 0;
  }

  const Shared& shared_;
  int16_t* const coefficients_;
  const uint32_t row_;
  Predictions dc_;
  Reader reader_;
  uint32_t mcu_ = 0, end_ = 0;
  uint32_t number_ = 0, component_ = 0, k_ = 0;  // the block in its MCU, its component, its next coefficient
  uint32_t kept_ = 0;                            // coefficients of the block that are needed: all or none
  const HuffmanTable* table_ = nullptr;
  const HuffmanTable* ac_table_ = nullptr;
  int16_t* block_ = nullptr;
};

HEADRACE_GPU inline bool HasDcOf(const Predictions& dc, const Image& image, const int16_t* expected) {
  for (uint32_t c = 0; c < image.num_components; ++c) {
    if (dc.Get(c) != expected[c]) return false;
  }
  return true;
}

// The way through a segment that Unstuff left in the burst's words.
HEADRACE_GPU inline Walk<WordReader> WalkWords(const Burst& burst, const Shared& shared, const Run& run) {
  Walk<WordReader> walk(burst, shared, run, WordReader(burst.words + run.words, (run.end - run.begin + 7) / 4, run.bit));
  walk.Begin(run.mcu, run.mcu + run.decoded);
  return walk;
}

// Does the segment end where the entry points say?
HEADRACE_GPU inline bool EndsRight(const Image& image, const Run& run, uint32_t length, Walk<WordReader>* walk) {
  const uint32_t end = length * 8, at = walk->reader().Tell();
  if (at > end) return false;
  if (run.decoded < run.count) return true;  // what follows is not needed, and only its bytes are looked at
  if (!run.has_next) return end - at <= 7;
  return at + 8 == end + run.next_bit && HasDcOf(walk->dc(), image, run.next_dc);
}

// A segment in parts, between restart markers.
HEADRACE_GPU inline Outcome WalkParts(const Burst& burst, const Shared& shared, const Run& run) {
  const Image& image = shared.image;
  const uint8_t* data = reinterpret_cast<const uint8_t*>(burst.words + run.words) - run.begin;  // as Unstuff left them: all of them
  Walk<FileReader> walk(burst, shared, run, FileReader(data, run.begin, run.end, run.bit));
  for (uint32_t done = 0; done < run.decoded;) {
    const uint32_t index = run.row * image.mcus_per_row + run.mcu + done;
    const uint32_t left = image.restart_interval - index % image.restart_interval;
    const bool at_marker = left <= run.count - done;
    const uint32_t count = at_marker ? left : run.count - done, decoded = Min<uint32_t>(count, run.decoded - done);
    walk.Begin(run.mcu + done, run.mcu + done + decoded);
    Outcome outcome = kGoesOn;
    while (outcome == kGoesOn) outcome = walk.Step();
    FileReader& reader = walk.reader();
    if (outcome == kDamaged || !reader.IsInside()) return kDamaged;
    const bool to_end = done + count == run.count;
    uint32_t byte, bit;
    reader.Tell(&byte, &bit);
    const uint32_t rest = reader.PassRest();
    if (decoded == count) {
      if (at_marker || !run.has_next) {
        if (rest > 7) return kDamaged;
      } else if (byte != run.next || bit != run.next_bit || !HasDcOf(walk.dc(), image, run.next_dc)) {
        return kDamaged;
      }
    }
    done += count;
    if (!at_marker || (to_end && !run.has_next)) {
      if (reader.at() != run.end) return kDamaged;
      continue;
    }
    const uint32_t marker = 0xD0 + ((index + count) / image.restart_interval + 7) % 8;
    uint32_t at = reader.at();
    while (at + 1 < run.end && data[at] == 0xFF && data[at + 1] == 0xFF) ++at;
    if (at + 1 >= run.end || data[at] != 0xFF || data[at + 1] != marker || (to_end && at + 2 != run.next)) return kDamaged;
    reader = FileReader(data, at + 2, run.end, 0);
    walk.dc().Reset();
  }
  return kDone;
}

}  // namespace headrace::gpu
