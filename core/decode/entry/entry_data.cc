#include "core/decode/entry/entry_data.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "core/decode/entry/entry_word.h"

namespace headrace {
namespace {

constexpr uint16_t kEntryVersion = 1;
constexpr size_t kHeaderBytes = 64, kTablesOffsetAt = 48, kBytesAt = 56;
static_assert(kMaxRowSpan == (1u << kEntryByteBits) - 1);

template <typename T>
T Load(const uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

template <typename T>
void Append(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Seals a blob: XXH3-64 of everything behind the first 8 bytes, in the first 8 bytes; length a multiple of `alignment`.
void Seal(std::string* blob, size_t alignment) {
  blob->resize((blob->size() + alignment - 1) / alignment * alignment);
  const uint64_t hash = XXH3_64bits(blob->data() + 8, blob->size() - 8);
  std::memcpy(blob->data(), &hash, 8);
}

bool IsSealed(absl::Span<const uint8_t> blob) {
  return blob.size() >= 8 && Load<uint64_t>(blob.data()) == XXH3_64bits(blob.data() + 8, blob.size() - 8);
}

uint64_t PackPoint(const EntryPoint& point, uint32_t base) {
  uint64_t word = point.bit | uint64_t{point.byte - base} << 3;
  for (int c = 0; c < 3; ++c) {
    word |= (static_cast<uint64_t>(point.dc[c]) & ((1 << kEntryDcBits) - 1)) << (3 + kEntryByteBits + kEntryDcBits * c);
  }
  return word;
}

}  // namespace

std::string EncodeEntries(const JpegShape& frame, const EntryPoints& entries, uint64_t tables_offset) {
  std::string out(8, '\0');
  Append<uint16_t>(&out, kEntryVersion);
  Append<uint8_t>(&out, entries.interval);
  Append<uint8_t>(&out, frame.num_components);
  Append<uint16_t>(&out, frame.width);
  Append<uint16_t>(&out, frame.height);
  for (const JpegComponent& component : frame.components) {
    Append<uint8_t>(&out, component.h << 4 | component.v);
    Append<uint8_t>(&out, component.quant);
    Append<uint8_t>(&out, component.dc);
    Append<uint8_t>(&out, component.ac);
  }
  Append<uint32_t>(&out, frame.restart_interval);
  Append<uint32_t>(&out, frame.scan_offset);
  Append<uint32_t>(&out, entries.scan_bytes);
  Append<uint32_t>(&out, static_cast<uint32_t>(frame.color));
  Append<uint64_t>(&out, tables_offset);
  out.resize(kHeaderBytes);
  const size_t per_row = (frame.mcus_per_row() + entries.interval - 1) / entries.interval;
  for (size_t i = 0; i < entries.points.size(); i += per_row) Append<uint32_t>(&out, entries.points[i].byte);
  out.resize((out.size() + 7) / 8 * 8);
  for (size_t i = 0; i < entries.points.size(); ++i) {
    const EntryPoint& point = entries.points[i];
    Append<uint64_t>(&out, PackPoint(point, entries.points[i / per_row * per_row].byte));
    if (frame.num_components == 4) Append<uint64_t>(&out, static_cast<uint64_t>(point.dc[3]) & ((1 << kEntryDcBits) - 1));
  }
  const auto bytes = static_cast<uint32_t>(out.size());
  std::memcpy(out.data() + kBytesAt, &bytes, sizeof bytes);
  Seal(&out, 8);
  return out;
}

void SetTablesOffset(uint64_t tables_offset, std::string* encoded) {
  std::memcpy(encoded->data() + kTablesOffsetAt, &tables_offset, sizeof tables_offset);
  Seal(encoded, 8);
}

std::string EncodeTables(const JpegTables& frame) {
  std::string out(8, '\0');
  Append<uint32_t>(&out, 0);  // bytes, below
  Append<uint8_t>(&out, frame.quant_mask);
  Append<uint8_t>(&out, frame.dc_mask);
  Append<uint8_t>(&out, frame.ac_mask);
  Append<uint8_t>(&out, 0);
  for (int i = 0; i < 4; ++i) {
    if (frame.quant_mask >> i & 1) out.append(reinterpret_cast<const char*>(frame.quant[i].data()), 128);
  }
  for (const auto& [mask, specs] : {std::pair{frame.dc_mask, &frame.dc}, std::pair{frame.ac_mask, &frame.ac}}) {
    for (int i = 0; i < 4; ++i) {
      if (!(mask >> i & 1)) continue;
      const HuffmanSpec& spec = (*specs)[i];
      out.append(reinterpret_cast<const char*>(spec.counts.data()), 16);
      out.append(reinterpret_cast<const char*>(spec.symbols.data()), spec.num_symbols);
    }
  }
  const uint32_t bytes = (out.size() + 7) / 8 * 8;
  std::memcpy(out.data() + 8, &bytes, 4);
  Seal(&out, 8);
  return out;
}

absl::StatusOr<uint32_t> TablesBytes(absl::Span<const uint8_t> preamble) {
  if (preamble.size() < kTablesPreambleBytes) return absl::DataLossError("the table set is cut off");
  const uint32_t bytes = Load<uint32_t>(preamble.data() + 8);
  if (bytes < kTablesPreambleBytes || bytes > kMaxTablesBytes || bytes % 8 != 0) {
    return absl::DataLossError("not a table set");
  }
  return bytes;
}

absl::Status ParseTables(absl::Span<const uint8_t> set, JpegTables* tables) {
  HEADRACE_ASSIGN_OR_RETURN(const uint32_t bytes, TablesBytes(set));
  if (bytes > set.size() || !IsSealed(set.subspan(0, bytes))) {
    return absl::DataLossError("the table set's checksum is wrong");
  }
  absl::Span<const uint8_t> rest = set.subspan(kTablesPreambleBytes, bytes - kTablesPreambleBytes);
  tables->quant_mask = set[12];
  tables->dc_mask = set[13];
  tables->ac_mask = set[14];
  for (int i = 0; i < 4; ++i) {
    if (!(tables->quant_mask >> i & 1)) continue;
    if (rest.size() < 128) return absl::DataLossError("the table set is cut off");
    std::memcpy(tables->quant[i].data(), rest.data(), 128);
    rest.remove_prefix(128);
  }
  for (const bool dc : {true, false}) {
    for (int i = 0; i < 4; ++i) {
      if (!((dc ? tables->dc_mask : tables->ac_mask) >> i & 1)) continue;
      if (rest.size() < 16) return absl::DataLossError("the table set is cut off");
      HuffmanSpec& spec = (dc ? tables->dc : tables->ac)[i];
      int symbols = 0;
      for (int l = 0; l < 16; ++l) symbols += spec.counts[l] = rest[l];
      if (symbols > 256 || rest.size() < 16u + symbols) return absl::DataLossError("the table set is cut off");
      spec.num_symbols = static_cast<uint16_t>(symbols);
      spec.symbols = {};
      std::copy_n(rest.begin() + 16, symbols, spec.symbols.begin());
      if (!IsUsableHuffmanSpec(spec, dc)) return absl::DataLossError("the table set holds an unusable Huffman table");
      rest.remove_prefix(16 + symbols);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTables(const JpegTables& tables, const JpegShape& shape) {
  for (int c = 0; c < shape.num_components; ++c) {
    const JpegComponent& component = shape.components[c];
    if (!(tables.quant_mask >> component.quant & 1) || !(tables.dc_mask >> component.dc & 1) ||
        !(tables.ac_mask >> component.ac & 1)) {
      return absl::DataLossError("the table set lacks a table of the image");
    }
  }
  return absl::OkStatus();
}

absl::Status ApplyTables(const JpegTables& tables, JpegFrame* frame) {
  HEADRACE_RETURN_IF_ERROR(CheckTables(tables, *frame));
  static_cast<JpegTables&>(*frame) = tables;
  return absl::OkStatus();
}

absl::Status ApplyTables(absl::Span<const uint8_t> bytes, JpegFrame* frame) {
  JpegTables tables;
  HEADRACE_RETURN_IF_ERROR(ParseTables(bytes, &tables));
  return ApplyTables(tables, frame);
}

absl::StatusOr<EntryView> EntryView::Parse(absl::Span<const uint8_t> bytes, uint64_t file_bytes, Sum sum) {
  const auto bad = [](const char* what) { return absl::DataLossError(std::string("entry data: ") + what); };
  if (bytes.size() < kHeaderBytes) return bad("cut off");
  const uint32_t entry_bytes = Load<uint32_t>(&bytes[kBytesAt]);
  if (entry_bytes < kHeaderBytes || entry_bytes > bytes.size()) return bad("cut off");
  bytes = bytes.subspan(0, entry_bytes);
  if (sum == Sum::kChecked && !IsSealed(bytes)) return bad("the checksum is wrong");
  if (Load<uint16_t>(&bytes[8]) != kEntryVersion) return bad("another version");
  EntryView view;
  JpegShape& frame = view.frame_;
  view.bytes_ = bytes;
  view.interval_ = bytes[10];
  frame.num_components = bytes[11];
  frame.width = Load<uint16_t>(&bytes[12]);
  frame.height = Load<uint16_t>(&bytes[14]);
  if (view.interval_ < 1 || view.interval_ > kMaxEntryInterval) return bad("the interval is out of range");
  if (frame.num_components != 1 && frame.num_components != 3 && frame.num_components != 4) {
    return bad("the number of components is out of range");
  }
  if (frame.width == 0 || frame.height == 0 || frame.width > 65500 || frame.height > 65500) {
    return bad("the size is out of range");
  }
  for (int c = 0; c < frame.num_components; ++c) {
    JpegComponent& component = frame.components[c];
    const uint8_t* entry = &bytes[16 + 4 * c];
    component = {static_cast<uint8_t>(entry[0] >> 4), static_cast<uint8_t>(entry[0] & 15), entry[1], entry[2], entry[3]};
    if (component.h < 1 || component.h > 4 || component.v < 1 || component.v > 4 || component.quant > 3 ||
        component.dc > 3 || component.ac > 3) {
      return bad("a component is out of range");
    }
  }
  if (frame.blocks_per_mcu() > 10) return bad("too many blocks in an MCU");
  if (frame.num_components == 1 && frame.blocks_per_mcu() != 1) return bad("too many blocks in an MCU");
  frame.restart_interval = Load<uint32_t>(&bytes[32]);
  frame.scan_offset = Load<uint32_t>(&bytes[36]);
  view.scan_bytes_ = Load<uint32_t>(&bytes[40]);
  const uint32_t color = Load<uint32_t>(&bytes[44]);
  view.tables_offset_ = Load<uint64_t>(&bytes[kTablesOffsetAt]);
  if (frame.restart_interval > 65535) return bad("the restart interval is out of range");
  if (color > 4 || (frame.num_components == 1) != (color == 0) || (frame.num_components == 4) != (color >= 3)) {
    return bad("the colour space does not fit");
  }
  frame.color = static_cast<JpegColor>(color);
  if (uint64_t{frame.scan_offset} + view.scan_bytes_ > file_bytes) return bad("the scan reaches behind the file");
  view.mcu_rows_ = frame.mcu_rows();
  view.segments_per_row_ = (frame.mcus_per_row() + view.interval_ - 1) / view.interval_;
  view.entry_words_ = frame.num_components == 4 ? 2 : 1;
  view.rows_offset_ = kHeaderBytes;
  view.entries_offset_ = (kHeaderBytes + size_t{4} * view.mcu_rows_ + 7) / 8 * 8;
  const uint64_t end = view.entries_offset_ +
                       uint64_t{8} * view.entry_words_ * view.mcu_rows_ * view.segments_per_row_;
  if (end != bytes.size()) return bad("the length does not fit");
  return view;
}

const uint8_t* EntryView::Words(int row, int segment) const {
  return bytes_.data() + entries_offset_ + size_t{8} * entry_words_ * (size_t(row) * segments_per_row_ + segment);
}

uint32_t EntryView::RowByte(int row) const { return Load<uint32_t>(bytes_.data() + rows_offset_ + size_t{4} * row); }

bool EntryView::Point(int row, int segment, EntryPoint* out) const {
  if (row < 0 || row >= mcu_rows_ || segment < 0 || segment >= segments_per_row_) return false;
  const uint8_t* entry = Words(row, segment);
  const uint64_t word = Load<uint64_t>(entry);
  const uint64_t byte = uint64_t{RowByte(row)} + EntryByte(word);
  if (byte > scan_bytes_) return false;
  out->byte = static_cast<uint32_t>(byte);
  out->bit = EntryBit(word);
  for (int c = 0; c < 3; ++c) out->dc[c] = EntryDc(word, c);
  out->dc[3] = entry_words_ == 2 ? SignedDc(Load<uint64_t>(entry + 8)) : int16_t{0};
  return true;
}

bool EntryView::SegmentEnd(int row, int segment, uint32_t* end) const {
  if (segment + 1 == segments_per_row_) {
    ++row;
    segment = -1;
  }
  if (row == mcu_rows_) {
    *end = scan_bytes_;
    return true;
  }
  EntryPoint next;
  if (!Point(row, segment + 1, &next)) return false;
  *end = std::min(next.byte + 1, scan_bytes_);
  return true;
}

}  // namespace headrace
