// The working set of entropy decoding: look-up tables, and per interleaved stream its bytes and its coefficients. One object
// of fixed size, so that the inner loop addresses everything from one register. Internal to core/decode/segment.
#pragma once

#include <array>
#include <cstdint>

#include "core/decode/entry/entry_data.h"
#include "core/decode/entry/jpeg_frame.h"

namespace headrace {

inline constexpr int kMaxStreams = 4;  // interleaved on one core; more no longer fit the registers
inline constexpr int kLookupBits = 10;
inline constexpr int kMaxSegmentBlocks = kMaxEntryInterval * 10;
// Every symbol takes at most 16 + 15 bits and passes at least one coefficient; two symbols may follow the last one.
inline constexpr size_t kStreamBytes = (size_t{kMaxSegmentBlocks} * 64 + 2) * 31 / 8 + 256;

// Positions of a segment's coefficients, and of what two symbols may pass behind the last.
inline constexpr int kSegmentPositions = (kMaxSegmentBlocks + 3) * 64;
inline constexpr int kShortSegment = kSegmentPositions;

// What kLookupBits bits say: a code, and of its extra bits what fits.
struct DecodeEntry {
  uint8_t bits;     // code + extra bits
  uint8_t advance;  // coefficients passed, itself included; 64 for an end of block; 0: the code is longer than
                    // kLookupBits, or its first extra bit is not seen
  int8_t mask;      // −1; −64 for an end of block: rounds the position down to the next block
  uint8_t unused;
  uint16_t extra;   // extra bits still to be read: their lowest bit in the 64-bit window | their number << 8
  int16_t value;    // of the coefficient, or what is added to those bits
};
static_assert(sizeof(DecodeEntry) == 8);

// Canonical decoding of codes of any length.
struct SlowTable {
  std::array<uint32_t, 17> limit;  // [bits]: left-aligned in 16 bits, the first code that is longer than `bits`
  std::array<int32_t, 17> offset;
  std::array<uint8_t, 256> symbols;
  bool ac;
};

// Both forms of one Huffman table.
void BuildDecodeTable(const HuffmanSpec& spec, bool ac, DecodeEntry* lookup, SlowTable* slow);

struct alignas(64) EntropyContext {
  // Tables 0 … 3: DC, 4 … 7: AC, 8: takes no bits and stores a zero (for what follows a segment's last coefficient).
  DecodeEntry lookup[9 << kLookupBits];
  // By position in a segment's coefficients (64 per block, zigzag within): where its table begins in `lookup`, and where
  // the coefficient is stored (natural order within its block). Two parts: full segments, and from kShortSegment on the
  // shorter one at the end of a row.
  uint16_t table_of[2 * kSegmentPositions];
  uint16_t place[2 * kSegmentPositions];
  uint8_t bytes[kMaxStreams][kStreamBytes];
  alignas(64) int16_t coefficients[kMaxStreams][kSegmentPositions];
  SlowTable slow[8];
  bool undefined_code = false;  // seen since it was last cleared
};

// Fills table_of, place and table 8 for an image whose segments have `interval` MCUs.
void SetUpSegments(const JpegFrame& frame, int interval, EntropyContext* context);

// One stream: a run of MCUs being decoded.
struct Stream {
  uint64_t bit = 0;       // of the next symbol, from EntropyContext::bytes[0]
  uint64_t position = 0;  // of the next coefficient
  uint64_t end = 0;       // the position behind the run's last coefficient
  int slot = 0;           // which of the context's bytes and coefficients are its own
};

// Where streams come from and go to.
class StreamSource {
 public:
  virtual ~StreamSource() = default;
  // Prepares bytes and coefficients (zeros) of stream->slot for the next run; false when there is none left.
  virtual bool Start(Stream* stream) = 0;
  // All coefficients of the run are there (DC still as differences). Must leave the slot's coefficients zero.
  virtual void Finish(const Stream& stream) = 0;
};

// For a symbol that `lookup` does not hold: the entry as `lookup` would say it, with all extra bits read from `window`.
DecodeEntry SlowSymbol(EntropyContext* context, uint32_t table, uint64_t window);

}  // namespace headrace
