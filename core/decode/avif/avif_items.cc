#include "core/decode/avif/avif_items.h"

#include <algorithm>
#include <map>

namespace headrace::avif {
namespace {

// The numbers of a gain map (ISO 21496-1) in a `tmap` item: of two headrooms and, for one channel or each of three, minimum, maximum,
// gamma and two offsets, all as fractions. False for versions that nobody reads yet.
absl::StatusOr<bool> ParseToneMap(Bytes content) {
  BoxReader reader(content);
  const absl::Status broken = Invalid("the gain map's numbers are broken");
  if (content[0] != 0) return false;
  reader.U8();
  const uint16_t least_version = reader.U16(), version = reader.U16();
  if (!reader.ok()) return broken;
  if (least_version > 0) return false;
  const int channels = (reader.U8() & 0x80) != 0 ? 3 : 1;
  bool is_valid = true;
  for (int headroom = 0; headroom < 2; ++headroom) {
    reader.U32();
    is_valid = reader.U32() != 0 && is_valid;
  }
  for (int channel = 0; channel < channels; ++channel) {
    uint32_t over[5], under[5];
    for (int i = 0; i < 5; ++i) {
      over[i] = reader.U32();
      under[i] = reader.U32();
      is_valid = is_valid && under[i] != 0;
    }
    const auto product = [&](int a, int b) { return int64_t{static_cast<int32_t>(over[a])} * under[b]; };
    is_valid = is_valid && product(1, 0) >= product(0, 1) && over[2] != 0;
  }
  return reader.ok() && is_valid && (version > 0 || reader.empty()) ? absl::StatusOr<bool>(true) : broken;
}

// Whether the first group of alternatives that knows item `second` names `first` before it.
bool IsPreferred(const Meta& meta, uint32_t first, uint32_t second) {
  for (const Bytes group : meta.alternatives) {
    bool seen = false;
    for (BoxReader reader(group); !reader.empty();) {
      const uint32_t id = reader.U32();
      if (id == second) return seen;
      seen = seen || id == first;
    }
  }
  return false;
}

}  // namespace

absl::StatusOr<std::vector<Bytes>> PiecesOf(const File& file, const Meta& meta, const Item& item, uint64_t wanted) {
  const Bytes source = item.in_idat ? meta.idat : file.bytes;
  std::vector<Bytes> pieces;
  if (item.size > file.bytes.size() || source.empty()) return CutOff();
  for (const auto& [offset, length] : item.extents) {
    const uint64_t count = std::min(length, wanted);
    if (offset > source.size() || (item.in_idat ? length : count) > source.size() - offset) return CutOff();
    pieces.push_back(source.subspan(static_cast<size_t>(offset), static_cast<size_t>(count)));
    wanted -= count;
    if (wanted == 0) return pieces;
  }
  return CutOff();
}

absl::StatusOr<std::vector<uint8_t>> ContentOf(const File& file, const Meta& meta, const Item& item) {
  HEADRACE_ASSIGN_OR_RETURN(const std::vector<Bytes> pieces, PiecesOf(file, meta, item, item.size));
  std::vector<uint8_t> content;
  for (const Bytes piece : pieces) content.insert(content.end(), piece.begin(), piece.end());
  return content;
}

std::vector<const Item*> PartsOf(const Meta& meta, uint32_t id, size_t count) {
  std::vector<const Item*> parts(count, nullptr);
  size_t found = 0;
  for (const Item& item : meta.items) {
    if (item.part_of != id) continue;
    ++found;
    if (item.part < count) parts[item.part] = &item;
  }
  if (found != count) parts.assign(count, nullptr);
  return parts;
}

absl::Status ParseGrid(Bytes content, AvifPlanes* planes) {
  BoxReader reader(content);
  const uint8_t version = reader.U8(), flags = reader.U8();
  planes->rows = reader.U8() + 1u;
  planes->columns = reader.U8() + 1u;
  const int bytes = (flags & 1) != 0 ? 4 : 2;
  planes->width = static_cast<uint32_t>(reader.Number(bytes));
  planes->height = static_cast<uint32_t>(reader.Number(bytes));
  if (version != 0 || !reader.ok() || !reader.empty()) return Invalid("the grid is broken");
  return absl::OkStatus();
}

absl::Status CheckColours(const Properties& properties) {
  int profiles = 0, numbers = 0;
  for (const Property& property : properties) {
    if (property.type != Code("colr")) continue;
    profiles += property.values[0] == kIcc ? 1 : 0;
    numbers += property.values[0] == kCicp ? 1 : 0;
  }
  return profiles > 1 || numbers > 1 ? Invalid("two colr boxes of one kind") : absl::OkStatus();
}

absl::Status CheckGainMap(const File& file, const Item& colour) {
  const Meta& meta = file.meta;
  std::map<uint32_t, std::map<uint32_t, const Item*>> parts_of;
  for (const Item& item : meta.items) {
    if (item.part_of != 0) parts_of[item.part_of][item.part] = &item;
  }
  const Item *tone_map = nullptr, *gains = nullptr;
  for (const Item& item : meta.items) {
    if (item.type != Code("tmap") || item.size == 0 || item.needs_more || item.thumbnail_for != 0) continue;
    std::map<uint32_t, const Item*>& parts = parts_of[item.id];
    if (parts.size() != 2) return Invalid("a gain map is of other than two pictures");
    if (parts[0] != &colour) continue;
    tone_map = &item;
    gains = parts[1];
    break;
  }
  if (tone_map == nullptr || !IsPreferred(meta, tone_map->id, colour.id)) return absl::OkStatus();
  HEADRACE_ASSIGN_OR_RETURN(const std::vector<uint8_t> content, ContentOf(file, meta, *tone_map));
  HEADRACE_ASSIGN_OR_RETURN(const bool is_known, ParseToneMap(content));
  if (!is_known) return absl::OkStatus();
  if (!gains->is_picture()) return Invalid("the gain map is no picture");
  if (gains->type == Code("grid")) {
    HEADRACE_ASSIGN_OR_RETURN(const std::vector<uint8_t> grid, ContentOf(file, meta, *gains));
    if (grid[0] != 0) return absl::OkStatus();
    AvifPlanes planes;
    HEADRACE_RETURN_IF_ERROR(ParseGrid(grid, &planes));
    const bool is_empty = planes.width == 0 || planes.height == 0;
    if (!is_empty && !CheckSize(planes.width, planes.height).ok()) return absl::OkStatus();
    const std::vector<const Item*> tiles = PartsOf(meta, gains->id, size_t{planes.rows} * planes.columns);
    const auto is_tile = [](const Item* tile) { return tile != nullptr && tile->type == Code("av01"); };
    if (is_empty || !std::all_of(tiles.begin(), tiles.end(), is_tile)) return Invalid("the gain map's grid is broken");
  }
  const auto is_number = [](const Property& one) { return one.type == Code("colr") && one.values[0] == kCicp; };
  const auto numbers = std::count_if(gains->properties.begin(), gains->properties.end(), is_number);
  const Property *extent = Find(tone_map->properties, Code("ispe")), *shown = Find(colour.properties, Code("ispe"));
  const bool fits = extent != nullptr && extent->values[0] == shown->values[0] && extent->values[1] == shown->values[1];
  if (numbers > 1 || !fits) return Invalid("the gain map has two kinds of colours or another size");
  for (const uint32_t type : {Code("pasp"), Code("clap"), Code("irot"), Code("imir")}) {
    if (Find(tone_map->properties, type) != nullptr) return Invalid("the gain map is turned");
  }
  return CheckColours(tone_map->properties);
}

}  // namespace headrace::avif
