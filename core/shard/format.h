// The byte layout of an index file (docs/shard_format.md), version 1: encoding, and decoding that trusts nothing.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "core/shard/dataset.h"

namespace headrace {

inline constexpr uint32_t kIndexVersion = 1;
inline constexpr uint32_t kIndexHeaderBytes = 128;      // before the field table
inline constexpr uint32_t kIndexFieldBytes = 64;        // per field, in the field table
inline constexpr uint32_t kMaxFields = 256;
inline constexpr uint32_t kMaxFieldNameBytes = 55;
inline constexpr uint64_t kMaxSamplesPerShard = 262144;  // bounds the packer's memory for rows
// width × height that a row may claim and an image may have: Pillow's MAX_IMAGE_PIXELS × 2 (where Pillow raises).
inline constexpr uint64_t kMaxImagePixels = uint64_t{2} * 89478485;
// What a reader takes memory for, whatever a file promises (a sparse one promises anything). Packed files have 512 MiB at most, and
// transcoding less than doubles them; an entry point of each MCU of the largest image has 16 bytes.
inline constexpr uint64_t kMaxValueBytes = uint64_t{1} << 30, kMaxEntryBytes = uint64_t{64} << 20;
inline constexpr uint32_t kEntryAlignment = 64;      // of what lies among the entry data
inline constexpr uint32_t kMaxRowBytes = 48 + 24 * kMaxFields + 64;

// 128-bit checksum in canonical (big-endian) form.
using Checksum128 = std::array<uint8_t, 16>;
std::string ToHex(const Checksum128& checksum);
// INVALID_ARGUMENT unless `hex` is 32 lower-case hexadecimal digits.
absl::StatusOr<Checksum128> ChecksumFromHex(const std::string& hex);

// "image", "int64", "float64", "text".
std::string KindName(FieldKind kind);
absl::StatusOr<FieldKind> KindFromName(const std::string& name);
// Whether values have a place in the LMDB file that the row names (image, text), or lie in the row themselves.
inline bool HasLocation(FieldKind kind) { return kind == FieldKind::kImage || kind == FieldKind::kText; }
// INVALID_ARGUMENT for names or combinations that the format cannot express: no field or more than kMaxFields, empty
// or long names, a zero byte in a name, two equal names, more than one image.
absl::Status ValidateFields(const std::vector<Field>& fields);

RowLayout MakeRowLayout(const std::vector<Field>& fields);

struct IndexHeader {
  uint32_t shard = 0;
  uint64_t first_sample = 0, num_samples = 0;
  uint64_t entries_bytes = 0;
  uint64_t lmdb_bytes = 0;
  Checksum128 lmdb_checksum = {};
  uint64_t entries_checksum = 0;
  uint32_t entry_interval = 0;  // MCUs per segment that entry data was asked for with; 0: none was
  std::vector<Field> fields;  // max_bytes is not part of the index

  uint64_t rows_offset() const;
  uint64_t entries_offset() const;
};

// rows_offset() bytes: header, field table, padding.
std::string EncodeIndexHeader(const IndexHeader& header);
// The size of header and field table, from the first kIndexHeaderBytes bytes. DATA_LOSS unless they begin an index of
// this version.
absl::StatusOr<uint32_t> IndexPreambleBytes(absl::Span<const uint8_t> begin);
// `preamble`: IndexPreambleBytes() bytes. DATA_LOSS for a wrong checksum, for numbers that contradict each other, or
// that do not fit a file of `index_bytes`.
absl::StatusOr<IndexHeader> DecodeIndexHeader(absl::Span<const uint8_t> preamble, uint64_t index_bytes);

// Writes layout.row_bytes bytes, checksum included.
void EncodeRow(const RowLayout& layout, const SampleRow& row, uint8_t* out);
// Changes the place of a value in an encoded row; the row's checksum is wrong until SealRow.
void SetValueOffset(const RowLayout& layout, int field, uint64_t offset, uint8_t* row);
void SealRow(const RowLayout& layout, uint8_t* row);

// What a row's numbers may be at most.
struct RowLimits {
  uint64_t lmdb_bytes = 0, entries_bytes = 0;
  const std::vector<Field>* fields = nullptr;
};
// Offset and bytes of a row's entry data, unchecked.
std::pair<uint64_t, uint64_t> EntriesPlace(const uint8_t* bytes);
// Fills `row` (but not location.shard). DATA_LOSS when the checksum, the number or any place is wrong. Allocates only
// while row->values grows.
absl::Status DecodeRow(const RowLayout& layout, const RowLimits& limits, uint64_t sample, const uint8_t* bytes,
                       SampleRow* row);

}  // namespace headrace
