#include "core/shard/format.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace headrace {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is read and written as it lies in memory");

constexpr char kMagic[8] = {'H', 'R', 'I', 'N', 'D', 'E', 'X', '\0'};
constexpr uint32_t kHeaderChecksumOffset = 120;
constexpr uint32_t kRowFieldsOffset = 48;
constexpr uint8_t kFlagProgressive = 1, kFlagDamaged = 2, kFlagTranscoded = 4;

template <typename T>
void Put(uint8_t* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

template <typename T>
T Get(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

uint64_t RoundUp64(uint64_t n) { return (n + 63) / 64 * 64; }

uint64_t RowChecksum(const uint8_t* row, uint32_t row_bytes) {
  return XXH3_64bits_withSeed(row + 8, row_bytes - 8, Get<uint64_t>(row + 8));
}

uint64_t PreambleChecksum(absl::Span<const uint8_t> preamble) {
  std::vector<uint8_t> copy(preamble.begin(), preamble.end());
  Put<uint64_t>(copy.data() + kHeaderChecksumOffset, 0);
  return XXH3_64bits(copy.data(), copy.size());
}

absl::Status Bad(const std::string& what) { return absl::DataLossError(what); }

}  // namespace

std::string ToHex(const Checksum128& checksum) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (uint8_t byte : checksum) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

absl::StatusOr<Checksum128> ChecksumFromHex(const std::string& hex) {
  Checksum128 checksum;
  if (hex.size() != 2 * checksum.size()) return absl::InvalidArgumentError("a checksum has 32 digits");
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  for (size_t i = 0; i < checksum.size(); ++i) {
    const int high = digit(hex[2 * i]), low = digit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return absl::InvalidArgumentError("a checksum has hexadecimal digits only");
    checksum[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return checksum;
}

std::string KindName(FieldKind kind) {
  switch (kind) {
    case FieldKind::kImage: return "image";
    case FieldKind::kInt64: return "int64";
    case FieldKind::kFloat64: return "float64";
    case FieldKind::kText: return "text";
  }
  return "unknown";
}

absl::StatusOr<FieldKind> KindFromName(const std::string& name) {
  for (FieldKind kind : {FieldKind::kImage, FieldKind::kInt64, FieldKind::kFloat64, FieldKind::kText}) {
    if (name == KindName(kind)) return kind;
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown kind of field `", name, "`"));
}

absl::Status ValidateFields(const std::vector<Field>& fields) {
  if (fields.empty() || fields.size() > kMaxFields) {
    return absl::InvalidArgumentError(
        absl::StrCat("a dataset has 1 to ", kMaxFields, " fields, not ", fields.size()));
  }
  std::set<std::string> names;
  int images = 0;
  for (const Field& field : fields) {
    if (field.name.empty() || field.name.size() > kMaxFieldNameBytes ||
        field.name.find('\0') != std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat("a field's name has 1 to ", kMaxFieldNameBytes, " bytes: `",
                                                     field.name, "`"));
    }
    if (!names.insert(field.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("two fields are named `", field.name, "`"));
    }
    images += field.kind == FieldKind::kImage;
  }
  if (images > 1) return absl::InvalidArgumentError("a dataset has one field of images at most");
  return absl::OkStatus();
}

RowLayout MakeRowLayout(const std::vector<Field>& fields) {
  RowLayout layout;
  uint32_t end = kRowFieldsOffset;
  for (const Field& field : fields) {
    layout.kinds.push_back(field.kind);
    layout.offsets.push_back(end);
    end += HasLocation(field.kind) ? 24 : 8;
  }
  layout.row_bytes = static_cast<uint32_t>(RoundUp64(end));
  return layout;
}

uint64_t IndexHeader::rows_offset() const {
  return RoundUp64(kIndexHeaderBytes + kIndexFieldBytes * fields.size());
}

uint64_t IndexHeader::entries_offset() const {
  return rows_offset() + num_samples * MakeRowLayout(fields).row_bytes;
}

std::string EncodeIndexHeader(const IndexHeader& header) {
  const RowLayout layout = MakeRowLayout(header.fields);
  std::string out(header.rows_offset(), '\0');
  uint8_t* at = reinterpret_cast<uint8_t*>(out.data());
  std::memcpy(at, kMagic, sizeof kMagic);
  Put<uint32_t>(at + 8, kIndexVersion);
  Put<uint32_t>(at + 12, header.shard);
  Put<uint64_t>(at + 16, header.first_sample);
  Put<uint64_t>(at + 24, header.num_samples);
  Put<uint32_t>(at + 32, static_cast<uint32_t>(header.fields.size()));
  Put<uint32_t>(at + 36, layout.row_bytes);
  Put<uint64_t>(at + 40, header.rows_offset());
  Put<uint64_t>(at + 48, header.entries_offset());
  Put<uint64_t>(at + 56, header.entries_bytes);
  Put<uint64_t>(at + 64, header.lmdb_bytes);
  std::memcpy(at + 72, header.lmdb_checksum.data(), header.lmdb_checksum.size());
  Put<uint64_t>(at + 88, header.entries_checksum);
  Put<uint32_t>(at + 96, header.entry_interval);
  for (size_t i = 0; i < header.fields.size(); ++i) {
    uint8_t* field = at + kIndexHeaderBytes + kIndexFieldBytes * i;
    Put<uint32_t>(field, static_cast<uint32_t>(header.fields[i].kind));
    Put<uint32_t>(field + 4, layout.offsets[i]);
    std::memcpy(field + 8, header.fields[i].name.data(), header.fields[i].name.size());
  }
  Put<uint64_t>(at + kHeaderChecksumOffset,
                PreambleChecksum({at, kIndexHeaderBytes + kIndexFieldBytes * header.fields.size()}));
  return out;
}

absl::StatusOr<uint32_t> IndexPreambleBytes(absl::Span<const uint8_t> begin) {
  if (begin.size() < kIndexHeaderBytes || std::memcmp(begin.data(), kMagic, sizeof kMagic) != 0) {
    return Bad("not an index file");
  }
  const uint32_t version = Get<uint32_t>(begin.data() + 8);
  if (version != kIndexVersion) {
    return Bad(absl::StrCat("index of version ", version, "; this program reads version ", kIndexVersion,
                            " (`headrace index DATASET` writes it anew)"));
  }
  const uint32_t num_fields = Get<uint32_t>(begin.data() + 32);
  if (num_fields == 0 || num_fields > kMaxFields) return Bad(absl::StrCat("index with ", num_fields, " fields"));
  return kIndexHeaderBytes + kIndexFieldBytes * num_fields;
}

absl::StatusOr<IndexHeader> DecodeIndexHeader(absl::Span<const uint8_t> preamble, uint64_t index_bytes) {
  HEADRACE_ASSIGN_OR_RETURN(uint32_t preamble_bytes, IndexPreambleBytes(preamble));
  if (preamble.size() != preamble_bytes) return Bad("index header cut off");
  const uint8_t* at = preamble.data();
  if (Get<uint64_t>(at + kHeaderChecksumOffset) != PreambleChecksum(preamble)) {
    return Bad("index header does not match its checksum");
  }
  IndexHeader header;
  header.shard = Get<uint32_t>(at + 12);
  header.first_sample = Get<uint64_t>(at + 16);
  header.num_samples = Get<uint64_t>(at + 24);
  header.entries_bytes = Get<uint64_t>(at + 56);
  header.lmdb_bytes = Get<uint64_t>(at + 64);
  std::memcpy(header.lmdb_checksum.data(), at + 72, header.lmdb_checksum.size());
  header.entries_checksum = Get<uint64_t>(at + 88);
  header.entry_interval = Get<uint32_t>(at + 96);
  const uint32_t num_fields = Get<uint32_t>(at + 32);
  for (uint32_t i = 0; i < num_fields; ++i) {
    const uint8_t* field = at + kIndexHeaderBytes + kIndexFieldBytes * i;
    const uint32_t kind = Get<uint32_t>(field);
    if (kind < 1 || kind > 4) return Bad(absl::StrCat("index field of kind ", kind));
    const char* name = reinterpret_cast<const char*>(field + 8);
    header.fields.push_back({std::string(name, strnlen(name, kMaxFieldNameBytes)), static_cast<FieldKind>(kind), 0});
  }
  if (absl::Status status = ValidateFields(header.fields); !status.ok()) return Bad(std::string(status.message()));
  const RowLayout layout = MakeRowLayout(header.fields);
  for (uint32_t i = 0; i < num_fields; ++i) {
    if (Get<uint32_t>(at + kIndexHeaderBytes + kIndexFieldBytes * i + 4) != layout.offsets[i]) {
      return Bad("index field at an unexpected place in the row");
    }
  }
  // num_samples is bounded first, so that no product below can overflow.
  if (header.num_samples == 0 || header.num_samples > index_bytes / layout.row_bytes) {
    return Bad(absl::StrCat("index of ", header.num_samples, " samples in ", index_bytes, " bytes"));
  }
  if (header.entries_bytes > index_bytes || header.first_sample > UINT64_MAX - header.num_samples ||
      Get<uint32_t>(at + 36) != layout.row_bytes || Get<uint64_t>(at + 40) != header.rows_offset() ||
      Get<uint64_t>(at + 48) != header.entries_offset() ||
      header.entries_offset() + header.entries_bytes != index_bytes) {
    return Bad(absl::StrCat("index header contradicts itself or the file's ", index_bytes, " bytes"));
  }
  return header;
}

void EncodeRow(const RowLayout& layout, const SampleRow& row, uint8_t* out) {
  std::memset(out, 0, layout.row_bytes);
  Put<uint64_t>(out + 8, row.sample);
  Put<uint32_t>(out + 16, row.image.width);
  Put<uint32_t>(out + 20, row.image.height);
  out[24] = static_cast<uint8_t>(row.image.format);
  out[25] = row.image.orientation;
  out[26] = row.image.components;
  out[27] = static_cast<uint8_t>((row.image.progressive ? kFlagProgressive : 0) |
                                 (row.image.damaged ? kFlagDamaged : 0) |
                                 (row.image.transcoded ? kFlagTranscoded : 0));
  std::memcpy(out + 28, row.image.sampling, sizeof row.image.sampling);
  Put<uint64_t>(out + 32, row.entries_offset);
  Put<uint64_t>(out + 40, row.entries_bytes);
  for (size_t i = 0; i < layout.kinds.size(); ++i) {
    uint8_t* part = out + layout.offsets[i];
    const SampleRow::Value& value = row.values[i];
    switch (layout.kinds[i]) {
      case FieldKind::kInt64: Put(part, value.i64); break;
      case FieldKind::kFloat64: Put(part, value.f64); break;
      case FieldKind::kImage:
      case FieldKind::kText:
        Put(part, value.location.offset);
        Put(part + 8, value.location.length);
        Put(part + 16, value.location.xxh3);
        break;
    }
  }
  SealRow(layout, out);
}

void SetValueOffset(const RowLayout& layout, int field, uint64_t offset, uint8_t* row) {
  Put(row + layout.offsets[static_cast<size_t>(field)], offset);
}

void SealRow(const RowLayout& layout, uint8_t* row) { Put(row, RowChecksum(row, layout.row_bytes)); }

std::pair<uint64_t, uint64_t> EntriesPlace(const uint8_t* bytes) { return {Get<uint64_t>(bytes + 32), Get<uint64_t>(bytes + 40)}; }

absl::Status DecodeRow(const RowLayout& layout, const RowLimits& limits, uint64_t sample, const uint8_t* bytes,
                       SampleRow* row) {
  if (Get<uint64_t>(bytes + 8) != sample) return Bad("index row of another sample");
  if (Get<uint64_t>(bytes) != RowChecksum(bytes, layout.row_bytes)) {
    return Bad("index row does not match its checksum");
  }
  row->sample = sample;
  ImageInfo& image = row->image;
  image.width = Get<uint32_t>(bytes + 16);
  image.height = Get<uint32_t>(bytes + 20);
  image.format = static_cast<ImageFormat>(bytes[24]);
  image.orientation = bytes[25];
  image.components = bytes[26];
  image.progressive = (bytes[27] & kFlagProgressive) != 0;
  image.damaged = (bytes[27] & kFlagDamaged) != 0;
  image.transcoded = (bytes[27] & kFlagTranscoded) != 0;
  std::memcpy(image.sampling, bytes + 28, sizeof image.sampling);
  std::tie(row->entries_offset, row->entries_bytes) = EntriesPlace(bytes);
  if (row->entries_offset % kEntryAlignment != 0 || row->entries_offset > limits.entries_bytes ||
      row->entries_bytes > limits.entries_bytes - row->entries_offset) {
    return Bad("index row points outside the entry data");
  }
  if (row->entries_bytes > kMaxEntryBytes) return Bad("index row has more entry data than any image");
  row->values.resize(layout.kinds.size());
  for (size_t i = 0; i < layout.kinds.size(); ++i) {
    const uint8_t* part = bytes + layout.offsets[i];
    SampleRow::Value& value = row->values[i];
    value = {};
    switch (layout.kinds[i]) {
      case FieldKind::kInt64: value.i64 = Get<int64_t>(part); continue;
      case FieldKind::kFloat64: value.f64 = Get<double>(part); continue;
      case FieldKind::kImage:
      case FieldKind::kText: break;
    }
    value.location.offset = Get<uint64_t>(part);
    value.location.length = Get<uint64_t>(part + 8);
    value.location.xxh3 = Get<uint64_t>(part + 16);
    if (value.location.offset > limits.lmdb_bytes ||
        value.location.length > limits.lmdb_bytes - value.location.offset) {
      return Bad(absl::StrCat("field `", (*limits.fields)[i].name, "` lies outside the shard's ", limits.lmdb_bytes,
                              " bytes"));
    }
    if (value.location.length > std::min((*limits.fields)[i].max_bytes, kMaxValueBytes)) {
      return Bad(absl::StrCat("field `", (*limits.fields)[i].name, "` is longer than the dataset's longest"));
    }
    if (layout.kinds[i] == FieldKind::kImage &&
        (image.width < 1 || image.height < 1 || uint64_t{image.width} * image.height > kMaxImagePixels ||
         image.format < ImageFormat::kJpeg || image.format > ImageFormat::kAvif || image.orientation < 1 ||
         image.orientation > 8 || image.components < 1 || image.components > 4)) {
      return Bad("index row describes no image");
    }
  }
  return absl::OkStatus();
}

}  // namespace headrace
