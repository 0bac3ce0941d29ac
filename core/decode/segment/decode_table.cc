#include <algorithm>
#include <utility>

#include "core/decode/segment/entropy_context.h"

namespace headrace {
namespace {

DecodeEntry EntryOf(uint8_t symbol, int code_bits, bool ac) {
  const int size = symbol & 15, run = ac ? symbol >> 4 : 0;
  DecodeEntry entry = {static_cast<uint8_t>(code_bits + size), static_cast<uint8_t>(run + 1), -1, 0, 0, 0};
  if (ac && size == 0 && run != 15) {
    entry.advance = 64;
    entry.mask = -64;
  }
  return entry;
}

// The value that `size` extra bits stand for (T.81, F.2.2.1, EXTEND).
int Extend(int extra, int size) { return extra < 1 << (size - 1) ? extra - (1 << size) + 1 : extra; }

}  // namespace

void SetUpSegments(const JpegFrame& frame, int interval, EntropyContext* context) {
  constexpr uint16_t kIdleTable = 8 << kLookupBits;
  std::fill_n(context->lookup + kIdleTable, size_t{1} << kLookupBits, DecodeEntry{0, 1, -64, 0, 0, 0});
  const int last = frame.mcus_per_row() % interval;
  for (const auto& [begin, mcus] : {std::pair{0, interval}, std::pair{kShortSegment, last == 0 ? interval : last}}) {
    int position = begin;
    for (int mcu = 0; mcu < mcus; ++mcu) {
      for (int c = 0; c < frame.num_components; ++c) {
        const JpegComponent& component = frame.components[c];
        for (int block = 0; block < component.h * component.v; ++block) {
          for (int k = 0; k < 64; ++k, ++position) {
            context->table_of[position] = static_cast<uint16_t>((k ? 4 + component.ac : component.dc) << kLookupBits);
            context->place[position] = static_cast<uint16_t>((position - begin - k) + kNaturalOrder[k]);
          }
        }
      }
    }
    for (int k = 0; k < 128; ++k, ++position) {
      context->table_of[position] = kIdleTable;
      context->place[position] = static_cast<uint16_t>(position - begin);
    }
  }
  std::fill_n(context->table_of + kIdlePosition, 64, kIdleTable);
  std::fill_n(context->place + kIdlePosition, 64, static_cast<uint16_t>(kStreamCoefficients - 1));
}

void BuildDecodeTable(const HuffmanSpec& spec, bool ac, DecodeEntry* lookup, SlowTable* slow) {
  std::fill_n(lookup, size_t{1} << kLookupBits, DecodeEntry{kSlowEntry, 0, 0, 0, 0, 0});
  slow->codes.Build(spec);
  slow->ac = ac;
  uint32_t code = 0;
  int32_t index = 0;
  for (int bits = 1; bits <= 16; ++bits) {
    for (int i = 0; i < spec.counts[bits - 1]; ++i, ++code, ++index) {
      const int room = kLookupBits - bits, size = spec.symbols[index] & 15;
      if (room < 0 || bits + size > kMaxSymbolBits) continue;
      DecodeEntry entry = EntryOf(spec.symbols[index], bits, ac);
      DecodeEntry* out = lookup + (size_t{code} << room);
      if (size == 0) {
        std::fill_n(out, size_t{1} << room, entry);
      } else if (size <= room) {
        for (int extra = 0; extra < 1 << size; ++extra) {
          entry.value = static_cast<int16_t>(Extend(extra, size));
          out = std::fill_n(out, size_t{1} << (room - size), entry);
        }
      } else if (room >= 1) {  // the first extra bit is the sign: the rest is added to a known number
        entry.extra = static_cast<uint16_t>((64 - (bits + size)) | size << 8);
        entry.value = static_cast<int16_t>(1 - (1 << size));
        out = std::fill_n(out, size_t{1} << (room - 1), entry);
        entry.value = 0;
        std::fill_n(out, size_t{1} << (room - 1), entry);
      }
    }
    code <<= 1;
  }
}

void SlowSymbol(EntropyContext* context, int stream) {
  EntropyContext::Stream& state = context->streams[static_cast<size_t>(stream)];
  const uint32_t table = context->table_of[state.position];
  const uint64_t window = WindowAt(context->bytes[0], state.bit);
  DecodeEntry entry = context->lookup[table + (window >> (64 - kLookupBits))];
  if (entry.bits == kSlowEntry) {
    const SlowTable& slow = context->slow[table >> kLookupBits];
    uint8_t symbol;
    const int bits = slow.codes.Decode(static_cast<uint32_t>(window >> 48), &symbol);
    if (bits == 0) {
      context->undefined_code = true;
      entry = {1, 64, -64, 0, 0, 0};  // anything that ends
    } else {
      entry = EntryOf(symbol, bits, slow.ac);
      const int size = symbol & 15;
      if (size > 0) entry.value = static_cast<int16_t>(Extend(static_cast<int>(window << bits >> (64 - size)), size));
    }
  } else if (entry.extra >> 8 != 0) {
    const uint64_t extra = window >> (entry.extra & 255) & ((uint64_t{1} << (entry.extra >> 8)) - 1);
    entry.value = static_cast<int16_t>(static_cast<int64_t>(extra) + entry.value);
  }
  const uint64_t behind = state.position + entry.advance;
  context->coefficients[stream][context->place[behind - 1]] = entry.value;
  state.position = behind & static_cast<uint64_t>(int64_t{entry.mask});
  state.bit += entry.bits;
}

}  // namespace headrace
