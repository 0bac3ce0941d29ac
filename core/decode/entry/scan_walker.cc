#include "core/decode/entry/scan_walker.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/decode/entry/canonical_codes.h"

namespace headrace {
namespace {

constexpr int kLookupBits = 11;
constexpr uint32_t kLookupSize = 1u << kLookupBits;
constexpr int kDcLookBits = 9;

// What a window of kLookupBits bits says: as many symbols of one block as its bits determine, extra bits included. The last
// one's extra bits may lie behind the window: their values do not matter here.
//   bits 0 … 5   bits consumed, at most kLookupBits + 15
//   bits 8 … 14  coefficients passed, 1 … 64 (an end of block counts one); kLongCode: the first code is longer, or none
//   bit 15       the last symbol is an end of block
using Entry = uint16_t;
constexpr uint32_t kLongCode = 127, kEndOfBlock = 0x8000;

constexpr int kLanes = 4;
// Blocks between two looks at how far a lane has come.
constexpr int kSegmentBlocks = 60;
static_assert(size_t{kSegmentBlocks + 2} * 64 * 31 / 8 < ScanWalker::kSlackBytes);
// Parts are at least so long: falling in step takes some of them.
constexpr uint64_t kMinPartBits = 8 * 2048, kMaxPartBits = 8 * 32768;
constexpr size_t kLaneEnds = kMaxPartBits / 2 + 2 * kSegmentBlocks;  // a block has two bits or more

// The next bits, the first 57 of them valid.
inline uint64_t Window(const uint8_t* bytes, uint64_t bit) {
  uint64_t word;
  std::memcpy(&word, bytes + (bit >> 3), 8);
  return __builtin_bswap64(word) << (bit & 7);
}

// Calls fill(first window, windows, code's bits, symbol) for each code of at most `window_bits` bits.
template <typename Fill>
void ForEachCode(const HuffmanSpec& spec, int window_bits, const Fill& fill) {
  uint32_t at = 0;
  for (int bits = 1, index = 0; bits <= window_bits; ++bits) {
    const uint32_t windows = 1u << (window_bits - bits);
    for (int i = 0; i < spec.counts[static_cast<size_t>(bits - 1)]; ++i, ++index, at += windows) {
      fill(at, windows, bits, spec.symbols[static_cast<size_t>(index)]);
    }
  }
}

void BuildDcLookup(const HuffmanSpec& spec, Entry* lookup, uint16_t* values) {
  std::fill_n(lookup, kLookupSize, static_cast<Entry>(kLongCode << 8));
  std::fill_n(values, 1 << kDcLookBits, uint16_t{0});
  ForEachCode(spec, kLookupBits, [&](uint32_t at, uint32_t windows, int bits, uint8_t size) {
    std::fill_n(lookup + at, windows, static_cast<Entry>(1 << 8 | (bits + size)));
  });
  ForEachCode(spec, kDcLookBits, [&](uint32_t at, uint32_t windows, int bits, uint8_t size) {
    std::fill_n(values + at, windows, static_cast<uint16_t>(bits << 8 | size));
  });
}

void BuildAcLookup(const HuffmanSpec& spec, Entry* lookup) {
  struct Symbol {
    uint8_t code_bits, bits, advance, end;
  };
  std::array<Symbol, kLookupSize> first = {};
  ForEachCode(spec, kLookupBits, [&](uint32_t at, uint32_t windows, int bits, uint8_t symbol) {
    const int size = symbol & 15, run = symbol >> 4;
    const bool end = size == 0 && run != 15;
    std::fill_n(first.begin() + at, windows,
                Symbol{static_cast<uint8_t>(bits), static_cast<uint8_t>(bits + size),
                       static_cast<uint8_t>(end ? 1 : run + 1), end});
  });
  for (uint32_t window = 0; window < kLookupSize; ++window) {
    Symbol sum = first[window];
    if (sum.code_bits == 0) sum.advance = kLongCode;
    while (sum.bits < kLookupBits && !sum.end) {
      const Symbol& next = first[(window << sum.bits) & (kLookupSize - 1)];
      if (next.code_bits == 0 || sum.bits + next.code_bits > kLookupBits || sum.advance + next.advance > 64) break;
      sum.bits = static_cast<uint8_t>(sum.bits + next.bits);
      sum.advance = static_cast<uint8_t>(sum.advance + next.advance);
      sum.end = next.end;
    }
    lookup[window] = static_cast<Entry>(sum.bits | sum.advance << 8 | sum.end << 15);
  }
}

// A walk of one part.
struct Lane {
  uint64_t bit = 0;        // of the next symbol
  uint64_t position = 0;   // of the next coefficient in its segment (64 per block)
  uint32_t* ends = nullptr;  // of the segment's blocks
  uint32_t* first_end = nullptr;
  uint64_t start = 0;      // where it began, or began again behind an error
  uint64_t stop = 0;
  bool done = false;
};

}  // namespace

struct ScanWalker::Tables {
  alignas(64) Entry lookup[8 * kLookupSize];  // DC 0 … 3, AC 4 … 7
  uint16_t dc_values[4][1 << kDcLookBits];        // code's bits << 8 | size of its value; 0: longer
  std::array<HuffmanSpec, 8> specs;
  std::array<CanonicalCodes, 8> codes;
  std::array<uint8_t, 10> dc_of = {}, ac_of = {};  // of an MCU's blocks
  uint64_t period = 1;                             // of the tables, in blocks
  // Where the table of a coefficient begins in `lookup`, by its position in a segment of whole periods.
  uint16_t table_of[kSegmentBlocks * 64];
  uint64_t segment_blocks = 0;
  std::array<std::unique_ptr<uint32_t[]>, kLanes> ends;

  void SetTable(size_t index, const HuffmanSpec& spec);
  void SetPattern(const JpegFrame& frame);
  template <int n>
  void Run(const uint8_t* bytes, Lane** lanes) const;
  [[gnu::noinline]] bool SlowStep(const uint8_t* bytes, Lane* lane) const;
  uint64_t StepBlock(const uint8_t* bytes, uint64_t bit, uint64_t block) const;
  [[gnu::always_inline]] inline int DcDifference(const uint8_t* bytes, uint64_t bit, size_t table) const;
  void RunParts(const uint8_t* bytes, uint64_t begin, uint64_t part, Lane* lanes) const;
};

void ScanWalker::Tables::SetTable(size_t index, const HuffmanSpec& spec) {
  if (specs[index] == spec) return;
  specs[index] = spec;
  codes[index].Build(spec);
  Entry* const entries = lookup + index * kLookupSize;
  if (index < 4) {
    BuildDcLookup(spec, entries, dc_values[index]);
  } else {
    BuildAcLookup(spec, entries);
  }
}

void ScanWalker::Tables::SetPattern(const JpegFrame& frame) {
  std::array<uint8_t, 10> dc_tables = {}, ac_tables = {};
  uint64_t blocks = 0;
  for (size_t c = 0; c < frame.num_components; ++c) {
    const JpegComponent& component = frame.components[c];
    for (int i = 0; i < component.h * component.v; ++i, ++blocks) {
      dc_tables[blocks] = component.dc;
      ac_tables[blocks] = component.ac;
    }
  }
  uint64_t new_period = 1;
  const auto repeats = [&] {
    for (uint64_t i = new_period; i < blocks; ++i) {
      if (dc_tables[i] != dc_tables[i - new_period] || ac_tables[i] != ac_tables[i - new_period]) return false;
    }
    return blocks % new_period == 0;
  };
  while (!repeats()) ++new_period;
  if (segment_blocks != 0 && new_period == period && dc_tables == dc_of && ac_tables == ac_of) return;
  period = new_period;
  dc_of = dc_tables;
  ac_of = ac_tables;
  segment_blocks = kSegmentBlocks / period * period;
  for (uint64_t i = 0; i < segment_blocks * 64; ++i) {
    const uint64_t block = i / 64 % period;
    table_of[i] = static_cast<uint16_t>((i % 64 == 0 ? dc_of[block] : 4 + ac_of[block]) * kLookupSize);
  }
}

// One symbol that `lookup` does not hold or that may be wrong. Behind an error a lane begins again, one bit on. True when the
// lane is done.
bool ScanWalker::Tables::SlowStep(const uint8_t* bytes, Lane* lane) const {
  const size_t table = table_of[lane->position] / kLookupSize;
  const uint64_t k = lane->position % 64;
  uint8_t symbol = 0;
  const int bits = codes[table].Decode(static_cast<uint32_t>(Window(bytes, lane->bit) >> 48), &symbol);
  const uint64_t size = symbol & 15, run = table < 4 ? 0 : symbol >> 4;
  const bool ends = table >= 4 && size == 0 && run != 15;
  if (bits == 0 || (!ends && k + run + 1 > 64)) {
    if (lane->bit >= lane->stop) return lane->done = true;
    lane->start = ++lane->bit;
    lane->position = 0;
    lane->ends = lane->first_end;
    return false;
  }
  lane->bit += static_cast<uint64_t>(bits) + size;
  lane->ends[lane->position / 64] = static_cast<uint32_t>(lane->bit);
  lane->position = ends ? (lane->position | 63) + 1 : lane->position + run + 1;
  return false;
}

// Walks n lanes until one is done. Everything that changes lies in registers.
template <int n>
void ScanWalker::Tables::Run(const uint8_t* bytes, Lane** lanes) const {
  uint64_t bit[n], position[n];
  uint32_t* lane_ends[n];
  const uint64_t segment_end = segment_blocks * 64;
  bool leave = false;
  const auto load = [&](auto i) __attribute__((always_inline)) {
    bit[i] = lanes[i]->bit;
    position[i] = lanes[i]->position;
    lane_ends[i] = lanes[i]->ends;
  };
  const auto save = [&](auto i) __attribute__((always_inline)) {
    lanes[i]->bit = bit[i];
    lanes[i]->position = position[i];
    lanes[i]->ends = lane_ends[i];
  };
  const auto step = [&](auto i) __attribute__((always_inline)) {
    const uint64_t window = Window(bytes, bit[i]) >> (64 - kLookupBits);
    const uint64_t entry = lookup[table_of[position[i]] + window];
    const uint64_t advance = entry >> 8 & 127;
    if (__builtin_expect((position[i] & 63) + advance > 64, 0)) {
      save(i);
      leave |= SlowStep(bytes, lanes[i]);
      load(i);
    } else {
      bit[i] += entry & 63;
      lane_ends[i][position[i] >> 6] = static_cast<uint32_t>(bit[i]);
      const uint64_t next_block = (position[i] | 63) + 1;
      position[i] = entry & kEndOfBlock ? next_block : position[i] + advance;
    }
    if (__builtin_expect(position[i] == segment_end, 0)) {
      position[i] = 0;
      lane_ends[i] += segment_blocks;
      if (bit[i] >= lanes[i]->stop) lanes[i]->done = leave = true;
    }
  };
  const auto each = [](const auto& what) __attribute__((always_inline)) {
    what(std::integral_constant<int, 0>());
    if constexpr (n > 1) what(std::integral_constant<int, 1>());
    if constexpr (n > 2) what(std::integral_constant<int, 2>());
    if constexpr (n > 3) what(std::integral_constant<int, 3>());
  };
  each(load);
  while (!leave) each(step);
  each(save);
}

void ScanWalker::Tables::RunParts(const uint8_t* bytes, uint64_t begin, uint64_t part, Lane* lanes) const {
  std::array<Lane*, kLanes> running;
  for (int i = 0; i < kLanes; ++i) {
    const uint64_t start = begin + static_cast<uint64_t>(i) * part;
    uint32_t* const first_end = ends[static_cast<size_t>(i)].get();
    lanes[i] = {start, 0, first_end, first_end, start, start + part, false};
    running[static_cast<size_t>(i)] = &lanes[i];
  }
  for (int left = kLanes; left > 0;) {
    switch (left) {
      case 4: Run<4>(bytes, running.data()); break;
      case 3: Run<3>(bytes, running.data()); break;
      case 2: Run<2>(bytes, running.data()); break;
      default: Run<1>(bytes, running.data());
    }
    left = static_cast<int>(std::remove_if(running.begin(), running.begin() + left, [](Lane* lane) { return lane->done; }) -
                            running.begin());
  }
}

// Passes block `block`, which begins at `bit`. Returns where it ends, 0 for an error.
uint64_t ScanWalker::Tables::StepBlock(const uint8_t* bytes, uint64_t bit, uint64_t block) const {
  Lane lane;
  std::array<uint32_t, kSegmentBlocks> unused_ends;
  lane.ends = unused_ends.data();
  lane.bit = lane.start = bit;
  const uint64_t first = block % period * 64;
  lane.position = first;
  while (lane.position < first + 64) {
    const Entry entry = lookup[table_of[lane.position] + (Window(bytes, lane.bit) >> (64 - kLookupBits))];
    const uint64_t advance = entry >> 8 & 127;
    if ((lane.position & 63) + advance > 64) {
      if (SlowStep(bytes, &lane)) return 0;
      continue;
    }
    lane.bit += entry & 63;
    lane.position = entry & kEndOfBlock ? first + 64 : lane.position + advance;
  }
  return lane.bit;
}

// Of the block that begins at `bit`, whose code is defined.
int ScanWalker::Tables::DcDifference(const uint8_t* bytes, uint64_t bit, size_t table) const {
  const uint64_t window = Window(bytes, bit);
  const uint16_t entry = dc_values[table][window >> (64 - kDcLookBits)];
  int bits = entry >> 8, size = entry & 255;
  if (bits == 0) {
    uint8_t symbol = 0;
    bits = codes[table].Decode(static_cast<uint32_t>(window >> 48), &symbol);
    size = symbol;
  }
  // T.81, F.2.2.1. Without a branch: sizes change from block to block.
  const uint64_t extra = window << bits;
  const int value = static_cast<int>(extra >> 1 >> (63 - size));
  return value - (-static_cast<int>(~extra >> 63) & ((1 << size) - 1));
}

ScanWalker::ScanWalker() : tables_(std::make_unique<Tables>()) {
  for (auto& ends : tables_->ends) ends.reset(new uint32_t[kLaneEnds]);  // not touched before it is needed
}
ScanWalker::~ScanWalker() = default;

void ScanWalker::SetTables(const JpegFrame& frame) {
  for (size_t i = 0; i < 4; ++i) {
    if (frame.dc_mask >> i & 1) tables_->SetTable(i, frame.dc[i]);
    if (frame.ac_mask >> i & 1) tables_->SetTable(4 + i, frame.ac[i]);
  }
  tables_->SetPattern(frame);
}

bool ScanWalker::Walk(const uint8_t* bytes, uint64_t begin, uint64_t end, uint64_t num_blocks,
                      std::vector<uint32_t>* ends, std::vector<int16_t>* dc_differences) {
  const Tables& tables = *tables_;
  const size_t first = ends->size();
  uint64_t bit = begin, block = 0;
  const auto step = [&] {
    bit = bit < end ? tables.StepBlock(bytes, bit, block++) : 0;
    ends->push_back(static_cast<uint32_t>(bit));
    return bit != 0;
  };
  while (block < num_blocks) {
    const uint64_t part = std::min((end - std::min(bit, end)) / kLanes, kMaxPartBits);
    if (part < kMinPartBits || block % tables.period != 0) {
      if (!step()) return false;
      continue;
    }
    std::array<Lane, kLanes> lanes;
    tables.RunParts(bytes, bit, part, lanes.data());
    if (lanes[0].start != bit) return false;  // it met an error
    for (const Lane& lane : lanes) {
      const uint32_t* const lane_ends = lane.first_end;
      const uint64_t lane_blocks = static_cast<uint64_t>(lane.ends - lane_ends) + lane.position / 64;
      // Goes on until the lane's walk is met where its tables begin anew, or has been left behind.
      for (uint64_t at = lane.start, behind = 0; block < num_blocks;) {
        while (at < bit && behind + tables.period <= lane_blocks) {
          behind += tables.period;
          at = lane_ends[behind - 1];
        }
        if (at == bit && block % tables.period == 0) {
          const uint64_t taken = std::min(lane_blocks - behind, num_blocks - block);
          ends->insert(ends->end(), lane_ends + behind, lane_ends + behind + taken);
          block += taken;
          if (taken > 0) bit = ends->back();
          break;
        }
        if (at < bit) break;
        if (!step()) return false;
      }
    }
  }
  if (bit > end) return false;
  // Here no block waits for the one before.
  dc_differences->resize(ends->size());
  for (size_t i = first, table = 0; i < ends->size(); ++i) {
    const uint64_t start = i == first ? begin : (*ends)[i - 1];
    (*dc_differences)[i] = static_cast<int16_t>(tables.DcDifference(bytes, start, tables.dc_of[table]));
    if (++table == tables.period) table = 0;
  }
  return true;
}

}  // namespace headrace
