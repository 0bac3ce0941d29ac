// The entry data of one image, as it lies in an index file (docs/shard_format.md, "Entry data"): what a decoder must know
// to start inside the entropy-coded data. Encoding, and views that trust nothing.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/decode/entry/jpeg_frame.h"

namespace headrace {

// Where decoding of a segment starts: the next bit of the entropy-coded data and the DC predictions.
struct EntryPoint {
  uint32_t byte = 0;  // from the scan's first byte, in the file's own (stuffed) bytes
  uint8_t bit = 0;    // 0 … 7, from the byte's most significant bit
  std::array<int16_t, 4> dc = {};  // −2048 … 2047
};

inline constexpr int kDefaultEntryInterval = 8;
inline constexpr int kMaxEntryInterval = 64;
inline constexpr uint32_t kMaxRowSpan = (1u << 25) - 1;  // bytes from a row's first entry point to its last

// What the packer computes for one image.
struct EntryPoints {
  int interval = kDefaultEntryInterval;  // K: MCUs per segment; the last segment of a row may be shorter
  uint32_t scan_bytes = 0;               // of the entropy-coded data, up to the marker behind it
  std::vector<EntryPoint> points;        // row by row, segments_per_row() each
};

// Bytes for the index file. `tables_offset` is where the image's table set (EncodeTables) begins there.
std::string EncodeEntries(const JpegShape& frame, const EntryPoints& entries, uint64_t tables_offset);
// Changes it in what EncodeEntries gave.
void SetTablesOffset(uint64_t tables_offset, std::string* encoded);
// The tables that the frame uses; equal tables give equal bytes, so that a shard stores each set once.
std::string EncodeTables(const JpegTables& tables);
// The size of the table set that begins with these 16 bytes, at most kMaxTablesBytes; DATA_LOSS if they begin none.
inline constexpr uint32_t kTablesPreambleBytes = 16;
inline constexpr uint32_t kMaxTablesBytes = 4096;
absl::StatusOr<uint32_t> TablesBytes(absl::Span<const uint8_t> preamble);

// Whether a checksum is looked at, or was right before over the same bytes.
enum class Sum { kChecked, kTrusted };

// A checked view of encoded entries; does not own the bytes. Every accessor's result is inside the bounds it states,
// whatever the bytes are.
class EntryView {
 public:
  // Of the entry data that begins with `bytes`; more may follow. DATA_LOSS when they are no entry data, contradict
  // themselves, or reach outside an image file of `file_bytes`.
  // O(rows); entries themselves are checked when used (Point clamps nothing, it fails).
  static absl::StatusOr<EntryView> Parse(absl::Span<const uint8_t> bytes, uint64_t file_bytes, Sum sum = Sum::kChecked);

  // The tables are in a table set of their own: ApplyTables.
  const JpegShape& frame() const { return frame_; }
  int interval() const { return interval_; }
  int segments_per_row() const { return segments_per_row_; }
  int mcu_rows() const { return mcu_rows_; }
  uint32_t scan_bytes() const { return scan_bytes_; }
  uint64_t tables_offset() const { return tables_offset_; }
  size_t bytes() const { return bytes_.size(); }

  // As they lie in the file, unchecked: the words of the entries from that one on (entry_word.h), and the byte of the scan that those
  // of the row count from.
  const uint8_t* Words(int row, int segment) const;
  int words_per_entry() const { return entry_words_; }
  uint32_t RowByte(int row) const;

  // Entry of segment `segment` (0 … segments_per_row) of MCU row `row`. False when its numbers lie outside the scan.
  bool Point(int row, int segment, EntryPoint* out) const;
  // The byte (from the scan's start) behind the last one that this segment's decoding may need: the next segment's byte
  // + 1, or the scan's end.
  bool SegmentEnd(int row, int segment, uint32_t* end) const;

 private:
  JpegShape frame_;
  absl::Span<const uint8_t> bytes_;
  int interval_ = 0, segments_per_row_ = 0, mcu_rows_ = 0, entry_words_ = 1;
  uint32_t scan_bytes_ = 0;
  uint64_t tables_offset_ = 0;
  size_t rows_offset_ = 0, entries_offset_ = 0;
};

// What EncodeTables encoded. DATA_LOSS unless the bytes begin a whole table set of usable tables.
absl::Status ParseTables(absl::Span<const uint8_t> bytes, JpegTables* tables);
// DATA_LOSS when a table that the image uses is missing.
absl::Status CheckTables(const JpegTables& tables, const JpegShape& shape);
// Gives the frame its tables, once they were checked.
absl::Status ApplyTables(const JpegTables& tables, JpegFrame* frame);
// The two in one.
absl::Status ApplyTables(absl::Span<const uint8_t> tables, JpegFrame* frame);

}  // namespace headrace
