#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

#include "core/decode/segment/entropy_context.h"

namespace headrace {
namespace {

DecodeEntry EntryOf(uint8_t symbol, int code_bits, bool ac) {
  const int size = symbol & 15, run = ac ? symbol >> 4 : 0;
  DecodeEntry entry = {static_cast<uint8_t>(code_bits + size), static_cast<uint8_t>(run + 1), -1, 0, 0, 0};
  if (ac && size == 0 && run != 15) {
    entry.advance = kBlockPositions;
    entry.mask = -kBlockPositions;
  }
  return entry;
}

// Entries are written as words: gcc writes their fields one by one, five stores each.
uint64_t WordOf(DecodeEntry entry) { return std::bit_cast<uint64_t>(entry); }
uint64_t WithValue(uint64_t word, int value) { return word | uint64_t{static_cast<uint16_t>(value)} << 48; }
static_assert(std::endian::native == std::endian::little && offsetof(DecodeEntry, value) == 6);

DecodeEntry* FillEntries(DecodeEntry* out, size_t n, uint64_t word) {
  for (size_t i = 0; i < n; ++i) std::memcpy(out + i, &word, sizeof word);
  return out + n;
}

// The entries for a code that leaves `room` bits of the index free. Returns their end.
DecodeEntry* FillCode(uint8_t symbol, int code_bits, bool ac, int room, DecodeEntry* out) {
  const int size = symbol & 15;
  DecodeEntry entry = EntryOf(symbol, code_bits, ac);
  if (size == 0) return FillEntries(out, size_t{1} << room, WordOf(entry));
  if (size <= room) {  // all extra bits are seen: negative values, then positive ones
    const uint64_t word = WordOf(entry);
    const size_t each = size_t{1} << (room - size);
    const int half = 1 << (size - 1);
    for (int value = 1 - 2 * half; value <= -half; ++value) out = FillEntries(out, each, WithValue(word, value));
    for (int value = half; value < 2 * half; ++value) out = FillEntries(out, each, WithValue(word, value));
    return out;
  }
  // The first extra bit is the sign: the rest is added to a known number.
  entry.extra = static_cast<uint16_t>((64 - entry.bits) | size << 8);
  const uint64_t word = WordOf(entry);
  out = FillEntries(out, size_t{1} << (room - 1), WithValue(word, 1 - (1 << size)));
  return FillEntries(out, size_t{1} << (room - 1), word);
}

// The value that `size` extra bits stand for (T.81, F.2.2.1, EXTEND).
int Extend(int extra, int size) { return extra < 1 << (size - 1) ? extra - (1 << size) + 1 : extra; }

}  // namespace

void SetUpSegments(const JpegFrame& frame, int interval, EntropyContext* context) {
  const auto table = [](int number) { return static_cast<uint16_t>(number << kLookupBits); };
  constexpr size_t kEntries = size_t{1} << kLookupBits;
  std::fill_n(context->lookup + table(kIdleTable), kEntries, DecodeEntry{0, 1, -64, 0, 0, 0});
  std::fill_n(context->lookup + table(kErrorTable), kEntries, DecodeEntry{kSlowEntry, 0, 0, 0, 0, 0});
  std::fill_n(context->second[0], size_t{1} << kSecondBits, DecodeEntry{kSlowEntry, 0, 0, 0, 0, 0});
  std::array<const JpegComponent*, kMaxBlocksPerMcu> blocks;  // the component of each block of an MCU
  size_t per_mcu = 0;
  for (int c = 0; c < frame.num_components; ++c) {
    const JpegComponent& component = frame.components[static_cast<size_t>(c)];
    for (int i = 0; i < component.h * component.v; ++i) blocks[per_mcu++] = &component;
  }
  const size_t n = static_cast<size_t>(interval) * per_mcu;
  for (size_t block = 0; block < n; ++block) {
    uint16_t* const tables = context->table_of + block * kBlockPositions;
    tables[0] = table(kDcTable + blocks[block % per_mcu]->dc);
    std::fill_n(tables + 1, 63, table(kAcTable + blocks[block % per_mcu]->ac));
    std::fill_n(tables + kBehindBlock, 64, table(kErrorTable));
    tables[kBehindBlock] =
        block + 1 < n ? table(kDcTableBehind + blocks[(block + 1) % per_mcu]->dc) : table(kIdleTable);
  }
  for (const size_t begin : {n * kBlockPositions, size_t{kIdlePosition}}) {
    std::fill_n(context->table_of + begin, 64, table(kIdleTable));
  }
}

void BuildDecodeTable(const HuffmanSpec& spec, bool ac, int index_of_table, EntropyContext* context) {
  constexpr size_t kEntries = size_t{1} << kLookupBits;
  constexpr DecodeEntry kSlow = {kSlowEntry, 0, 0, 0, 0, 0};
  const int number = (ac ? kAcTable : kDcTable) + index_of_table;
  DecodeEntry* const lookup = context->lookup + (static_cast<size_t>(number) << kLookupBits);
  context->slow[number].codes.Build(spec);
  context->slow[number].ac = ac;
  DecodeEntry* next = lookup;
  uint32_t code = 0;
  size_t index = 0, second = 1 + static_cast<size_t>(number * kSecondTables);
  const size_t second_end = second + kSecondTables;
  for (int bits = 1; bits <= 16; ++bits, code <<= 1) {
    for (int i = 0; i < spec.counts[static_cast<size_t>(bits - 1)]; ++i, ++code, ++index) {
      const uint8_t symbol = spec.symbols[index];
      if (bits < kLookupBits || (bits == kLookupBits && (symbol & 15) == 0)) {
        next = FillCode(symbol, bits, ac, kLookupBits - bits, next);
        continue;
      }
      // The first kLookupBits bits lead to a second table, which the next codes share as far as they begin with the same.
      DecodeEntry* const first = lookup + (code >> (bits - kLookupBits));
      if (first >= next) {
        next = first + 1;
        *first = kSlow;
        if (second < second_end) {
          first->extra = static_cast<uint16_t>(second);
          FillEntries(context->second[second++], size_t{1} << kSecondBits, WordOf(kSlow));
        }
      }
      if (first->extra == 0) continue;
      const int room = kLookupBits + kSecondBits - bits;
      FillCode(symbol, bits, ac, room, context->second[first->extra] + ((code << room) & ((1 << kSecondBits) - 1)));
    }
  }
  std::fill(next, lookup + kEntries, kSlow);
  if (ac) return;
  DecodeEntry* const behind = context->lookup + (static_cast<size_t>(kDcTableBehind + index_of_table) << kLookupBits);
  constexpr uint64_t kFurther = uint64_t{kBlockPositions - kBehindBlock} << 8 * offsetof(DecodeEntry, advance);
  for (size_t i = 0; i < kEntries; ++i) {
    FillEntries(behind + i, 1, lookup[i].bits == kSlowEntry ? WordOf(kSlow) : WordOf(lookup[i]) + kFurther);
  }
}

void SlowSymbol(EntropyContext* context, int stream) {
  constexpr DecodeEntry kAnyEnd = {1, kBlockPositions, -kBlockPositions, 0, 0, 0};  // goes on somehow
  EntropyContext::Stream& state = context->streams[static_cast<size_t>(stream)];
  const size_t table = context->table_of[state.position];
  const uint64_t window = WindowAt(context->bytes[0], state.bit);
  DecodeEntry entry = context->lookup[table + (window >> (64 - kLookupBits))];
  if (entry.bits == kSlowEntry && entry.extra != 0) {
    entry = context->second[entry.extra][window << kLookupBits >> (64 - kSecondBits)];
  }
  if (entry.bits == kSlowEntry) {
    const int number = static_cast<int>(table >> kLookupBits);
    const bool behind = number >= kDcTableBehind;
    uint8_t symbol = 0;
    int bits = 0;
    const SlowTable* slow = number == kErrorTable ? nullptr : &context->slow[behind ? number - kDcTableBehind : number];
    if (slow != nullptr) bits = slow->codes.Decode(static_cast<uint32_t>(window >> 48), &symbol);
    context->damaged |= bits == 0;
    entry = bits == 0 ? kAnyEnd : EntryOf(symbol, bits, slow->ac);
    if (behind && bits != 0) entry.advance = 1 + kBlockPositions - kBehindBlock;
    const int size = symbol & 15;
    if (size > 0) entry.value = static_cast<int16_t>(Extend(static_cast<int>(window << bits >> (64 - size)), size));
  } else if (entry.extra != 0) {
    const uint64_t extra = window >> (entry.extra & 255) & ((uint64_t{1} << (entry.extra >> 8)) - 1);
    entry.value = static_cast<int16_t>(static_cast<int64_t>(extra) + entry.value);
  }
  const uint64_t end = state.position + entry.advance;
  context->coefficients[stream][end - 1] = entry.value;
  state.position = end & static_cast<uint64_t>(int64_t{entry.mask});
  state.bit += entry.bits;
}

}  // namespace headrace
