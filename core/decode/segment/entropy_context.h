// The working set of entropy decoding: look-up tables, and per interleaved stream its bytes and its coefficients. One object
// of fixed size, so that the inner loop addresses everything from one register. Internal to core/decode/segment.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/decode/entry/canonical_codes.h"
#include "core/decode/entry/entry_data.h"
#include "core/decode/entry/jpeg_frame.h"

namespace headrace {

inline constexpr int kMaxStreams = 4;        // interleaved on one core; more no longer fit the registers
inline constexpr int kLookupBits = 9;        // 4 KiB a table: with 10 bits they crowd a first-level cache of 32 KiB
inline constexpr int kSecondBits = 8;        // that tell longer codes apart: 16 bits, and the sign behind them
inline constexpr int kSecondTables = 32;     // at most, of each Huffman table
inline constexpr int kSymbolsPerTurn = 2;    // of each stream, out of one window of 57 bits: 9 + 15 at most each
inline constexpr int kMaxBlocksPerMcu = 10;  // T.81, B.2.3; EntryView::Parse refuses more
inline constexpr int kMaxSegmentBlocks = kMaxEntryInterval * kMaxBlocksPerMcu;
// Every symbol takes at most 16 + 15 bits and passes at least one coefficient.
inline constexpr size_t kMaxStreamBytes = (size_t{kMaxSegmentBlocks} * 64 + kSymbolsPerTurn) * 31 / 8 + 256;

// A block takes 128 positions: 0 … 63 its coefficients in zigzag order, 64 the next block's beginning, which a block without an
// end-of-block code comes to; what a run of zeros reaches behind that is damage. A coefficient is stored at its position.
inline constexpr int kBlockPositions = 128;
inline constexpr int kBehindBlock = 64;
inline constexpr int kSegmentPositions = (kMaxSegmentBlocks + 1) * kBlockPositions;
inline constexpr int kIdlePosition = kSegmentPositions;  // of a stream that has no run

// Apart by an odd share of 4 KiB, so that the streams' first kilobytes, all that most images use, share no cache sets.
inline constexpr size_t kStreamBytes = (kMaxStreamBytes + 4095) / 4096 * 4096 + 1088;
inline constexpr size_t kStreamCoefficients = (size_t{kSegmentPositions} * 2 + 64 * 2 + 4095) / 4096 * 2048 + 576;

// What kLookupBits bits say: a code, and of its extra bits what fits.
struct DecodeEntry {
  uint8_t bits;     // code + extra bits; kSlowEntry: more bits must be looked at
  uint8_t advance;  // coefficients passed, itself included; 128 for an end of block
  int8_t mask;      // −1; −128 for an end of block: rounds the position down to the next block
  uint8_t unused;
  uint16_t extra;   // extra bits still to be read: their lowest bit in the 64-bit window | their number << 8. Of a slow entry:
                    // which of `second` says (number 0 says nothing: SlowSymbol)
  int16_t value;    // of the coefficient, or what is added to those bits
};
static_assert(sizeof(DecodeEntry) == 8);
inline constexpr uint8_t kSlowEntry = 0x80;

// For codes of any length.
struct SlowTable {
  CanonicalCodes codes;
  bool ac;
};

// Numbers of the look-up tables.
inline constexpr int kDcTable = 0, kAcTable = 4;  // and three more each
inline constexpr int kIdleTable = 8;              // takes no bits, stores a zero and stays: behind a segment, for idle streams
inline constexpr int kDcTableBehind = 9;          // DC read at kBehindBlock of the block before
inline constexpr int kErrorTable = 13;            // only slow entries
inline constexpr int kTables = 14;

struct alignas(64) EntropyContext {
  // Per stream. An idle one stands at kIdlePosition and takes no bits.
  struct Stream {
    uint64_t bit = 0;       // of the next symbol, from `bytes`
    uint64_t position = 0;  // of the next coefficient
    uint64_t end = 0;       // the position behind the run's last coefficient
  };
  std::array<Stream, kMaxStreams> streams;
  DecodeEntry lookup[kTables << kLookupBits];
  // Of codes longer than kLookupBits, by the bits behind those: entries as in `lookup`. None is number 0.
  DecodeEntry second[1 + 8 * kSecondTables][1 << kSecondBits];
  // By position in a segment: where its table begins in `lookup`. A run of n MCUs takes the positions of a segment's last n,
  // so that it always ends where the segment does.
  uint16_t table_of[kSegmentPositions + 64];
  uint8_t bytes[kMaxStreams][kStreamBytes];
  alignas(64) int16_t coefficients[kMaxStreams][kStreamCoefficients];
  SlowTable slow[8];
  bool damaged = false;  // an undefined code or too many coefficients were seen since it was last cleared
};

// Both forms of one Huffman table, and a DC table's second look-up. `index`: 0 … 3.
void BuildDecodeTable(const HuffmanSpec& spec, bool ac, int index, EntropyContext* context);

// Fills table_of and the fixed tables for images whose segments have `interval` MCUs of `frame`'s components.
void SetUpSegments(const JpegFrame& frame, int interval, EntropyContext* context);

// 64 bits from `bit` on, of which 57 are valid.
inline uint64_t WindowAt(const uint8_t* bytes, uint64_t bit) {
  uint64_t word;
  __builtin_memcpy(&word, bytes + (bit >> 3), 8);
  return __builtin_bswap64(word) << (bit & 7);
}

// Decodes the next symbol of a stream, whatever it is.
void SlowSymbol(EntropyContext* context, int stream);

}  // namespace headrace
