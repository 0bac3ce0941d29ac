#include "core/decode/avif/avif_boxes.h"

#include <algorithm>

namespace headrace::avif {
namespace {

// libavif's limits.
constexpr uint64_t kMaxArea = uint64_t{16384} * 16384;
constexpr uint32_t kMaxSide = 32768;
// Ours: what an entry costs is up to a hundred times what it takes in the file. A grid and its alpha are 131,074 items at most.
constexpr size_t kMaxItems = 1 << 18, kMaxAssociations = 1 << 21;
constexpr size_t kSampleEntryBytes = 78;

absl::Status ParseHandler(Bytes body, uint32_t* type) {
  BoxReader reader(body);
  reader.RequireVersion0();
  const uint32_t predefined = reader.U32();
  *type = reader.U32();
  reader.Take(12);
  reader.Text();
  return reader.ok() && predefined == 0 ? absl::OkStatus() : Broken("hdlr");
}

absl::Status ParseColour(BoxReader* reader, Property* property) {
  uint32_t* const values = property->values;
  const uint32_t kind = reader->U32();
  if (kind == Code("rICC") || kind == Code("prof")) {
    values[0] = kIcc;
    if (reader->empty()) reader->Fail();
  } else if (kind == Code("nclx")) {
    values[0] = kCicp;
    values[1] = reader->U16();
    reader->U16();
    values[2] = reader->U16();
    const uint8_t range = reader->U8();
    values[3] = range >> 7;
    if ((range & 0x7F) != 0) reader->Fail();
  }
  return reader->ok() ? absl::OkStatus() : Broken("colr");
}

absl::Status ParseProperty(const Box& box, bool of_track, Property* property) {
  property->type = box.type;
  BoxReader reader(box.body);
  uint32_t* const values = property->values;
  switch (box.type) {
    case Code("ispe"):
      reader.RequireVersion0();
      values[0] = reader.U32();
      values[1] = reader.U32();
      break;
    case Code("auxC"):
    case Code("auxi"):
      property->known = (box.type == Code("auxi")) == of_track;
      if (!property->known) return absl::OkStatus();
      reader.RequireVersion0();
      property->text = reader.Text();
      break;
    case Code("colr"):
      return ParseColour(&reader, property);
    case Code("av1C"):
      if (reader.U8() != 0x81) return Broken("av1C");
      values[0] = reader.U16();
      reader.U8();
      break;
    case Code("pasp"):
      reader.Take(8);
      break;
    case Code("clap"): {
      const Bytes crop = reader.Take(32);
      property->text = {reinterpret_cast<const char*>(crop.data()), crop.size()};
      break;
    }
    case Code("clli"):
      reader.Take(4);
      break;
    case Code("irot"):
    case Code("imir"):
      values[0] = reader.U8();
      if (values[0] > (box.type == Code("irot") ? 3u : 1u)) reader.Fail();
      break;
    case Code("pixi"): {
      reader.RequireVersion0();
      const int planes = reader.U8();
      if (planes < 1 || planes > 4) reader.Fail();
      values[0] = reader.U8();
      for (int plane = 1; plane < planes; ++plane) {
        if (reader.U8() != values[0]) reader.Fail();
      }
      break;
    }
    case Code("a1op"):
      values[0] = reader.U8();
      if (values[0] > 31) reader.Fail();
      break;
    case Code("lsel"):
      values[0] = reader.U16();
      if (values[0] != 0xFFFF && values[0] > 3) reader.Fail();
      break;
    case Code("a1lx"): {
      const uint8_t large = reader.U8();
      if (large > 1) reader.Fail();
      for (int i = 0; i < 3; ++i) values[i] = static_cast<uint32_t>(reader.Number(large != 0 ? 4 : 2));
      break;
    }
    default:
      property->known = false;
  }
  return reader.ok() ? absl::OkStatus() : Invalid("a property is broken");
}

absl::Status ParseProperties(Bytes body, bool of_track, Properties* properties) {
  BoxReader reader(body);
  while (!reader.empty()) {
    const Box box = reader.Next();
    if (!reader.ok()) return Broken("ipco");
    HEADRACE_RETURN_IF_ERROR(ParseProperty(box, of_track, &properties->emplace_back()));
  }
  return absl::OkStatus();
}

absl::Status ParseLocations(Bytes body, Meta* meta) {
  BoxReader reader(body);
  const uint8_t version = reader.Version();
  const uint16_t sizes = reader.U16();
  const int offset_size = sizes >> 12, length_size = sizes >> 8 & 15, base_size = sizes >> 4 & 15;
  const int index_size = version > 0 ? sizes & 15 : 0;
  for (const int size : {offset_size, length_size, base_size, index_size}) {
    if (size != 0 && size != 4 && size != 8) return Broken("iloc");
  }
  const uint64_t count = reader.Number(version < 2 ? 2 : 4);
  if (version > 2) return Broken("iloc");
  for (uint64_t i = 0; i < count && reader.ok(); ++i) {
    const auto id = static_cast<uint32_t>(reader.Number(version < 2 ? 2 : 4));
    if (id == 0) return Broken("iloc");
    Item& item = meta->Get(id);
    if (item.is_placed) return Broken("iloc");
    if (version > 0) {
      const uint16_t method = reader.U16();
      if (method > 1) return Broken("iloc");
      item.in_idat = item.in_idat || method == 1;
    }
    reader.U16();
    const uint64_t base = reader.Number(base_size);
    const uint16_t extents = reader.U16();
    item.is_placed = extents > 0;
    if (length_size == 0 && offset_size == 0 && index_size == 0) continue;  // so many times nothing
    for (int extent = 0; extent < extents && reader.ok(); ++extent) {
      reader.Number(index_size);
      const uint64_t offset = reader.Number(offset_size), length = reader.Number(length_size);
      if (offset > UINT64_MAX - base || length > UINT64_MAX - item.size) return Broken("iloc");
      if (length > 0) item.extents.emplace_back(base + offset, length);
      item.size += length;
    }
  }
  return reader.ok() ? absl::OkStatus() : Broken("iloc");
}

absl::Status ParseInformation(Bytes body, Meta* meta) {
  BoxReader reader(body);
  const uint8_t version = reader.Version();
  if (version > 1) return Broken("iinf");
  const uint64_t count = reader.Number(version == 0 ? 2 : 4);
  for (uint64_t i = 0; i < count && reader.ok(); ++i) {
    const Box box = reader.Next();
    BoxReader entry(box.body);
    const uint8_t entry_version = entry.Version();
    if (!reader.ok() || box.type != Code("infe") || (entry_version != 2 && entry_version != 3)) return Broken("iinf");
    const auto id = static_cast<uint32_t>(entry.Number(entry_version == 2 ? 2 : 4));
    entry.U16();
    const uint32_t type = entry.U32();
    entry.Text();
    const std::string_view content_type = type == Code("mime") ? entry.Text() : std::string_view();
    if (!entry.ok() || id == 0) return Broken("infe");
    Item& item = meta->Get(id);
    item.type = type;
    item.content_type = content_type;
  }
  return reader.ok() ? absl::OkStatus() : Broken("iinf");
}

absl::Status ParseReferences(Bytes body, Meta* meta) {
  BoxReader reader(body);
  const uint8_t version = reader.Version();
  if (version > 1) return reader.ok() ? absl::OkStatus() : Broken("iref");
  const int id_size = version == 0 ? 2 : 4;
  while (!reader.empty()) {
    uint32_t type = 0;
    if (reader.Head(&type, nullptr) > reader.rest().size()) return Broken("iref");
    const auto from = static_cast<uint32_t>(reader.Number(id_size));
    if (from == 0) return Broken("iref");
    if (type == Code("dimg")) {
      Item& item = meta->Get(from);
      if (item.has_parts) return Broken("iref");
      item.has_parts = true;
    }
    meta->Get(from);
    const uint16_t count = reader.U16();
    for (uint32_t i = 0; i < count && reader.ok(); ++i) {
      const auto to = static_cast<uint32_t>(reader.Number(id_size));
      if (to == 0) return Broken("iref");
      if (type == Code("dimg")) {
        Item& part = meta->Get(to);
        if (part.part_of != 0) return Invalid("an item is part of two pictures");
        part.part_of = from;
        part.part = i;
        continue;
      }
      Item& item = meta->Get(from);
      if (type == Code("thmb")) item.thumbnail_for = to;
      if (type == Code("auxl")) item.auxiliary_for = to;
      if (type == Code("cdsc")) item.describes = to;
      if (type == Code("prem")) item.premultiplied_by = to;
    }
  }
  return reader.ok() ? absl::OkStatus() : Broken("iref");
}

absl::Status ParseAssociations(Bytes body, Meta* meta, uint32_t* version_and_flags) {
  BoxReader reader(body);
  uint32_t flags = 0;
  const uint8_t version = reader.Version(&flags);
  *version_and_flags = uint32_t{version} << 24 | flags;
  const int index_size = (flags & 1) != 0 ? 2 : 1;
  const uint32_t count = reader.U32();
  uint32_t previous = 0;
  for (uint32_t i = 0; i < count && reader.ok(); ++i) {
    const auto id = static_cast<uint32_t>(reader.Number(version < 1 ? 2 : 4));
    if (id <= previous) return Broken("ipma");
    previous = id;
    Item& item = meta->Get(id);
    if (item.has_associations) return Broken("ipma");
    item.has_associations = true;
    const uint8_t associations = reader.U8();
    for (int k = 0; k < associations && reader.ok(); ++k) {
      const auto value = static_cast<uint32_t>(reader.Number(index_size));
      const uint32_t top = index_size == 2 ? 0x8000 : 0x80;
      const bool essential = (value & top) != 0;
      const uint32_t number = value & (top - 1);
      if (number == 0 && !essential) continue;
      if (number == 0 || number > meta->properties.size()) return Broken("ipma");
      const Property& property = meta->properties[number - 1];
      const uint32_t type = property.type;
      const bool must = type == Code("a1op") || type == Code("lsel") || type == Code("clap") || type == Code("irot") ||
                        type == Code("imir");
      if (property.known && (essential ? type == Code("a1lx") : must)) return Broken("ipma");
      item.needs_more = item.needs_more || (essential && !property.known);
      if (property.known) item.properties.push_back(property);
      if (++meta->associations > kMaxAssociations) return Invalid("too many properties");
    }
  }
  return reader.ok() ? absl::OkStatus() : Broken("ipma");
}

absl::Status ParseItemProperties(Bytes body, Meta* meta) {
  BoxReader reader(body);
  const Box container = reader.Next();
  if (!reader.ok() || container.type != Code("ipco")) return Broken("iprp");
  HEADRACE_RETURN_IF_ERROR(ParseProperties(container.body, false, &meta->properties));
  std::vector<uint32_t> seen;
  while (!reader.empty()) {
    const Box box = reader.Next();
    if (!reader.ok() || box.type != Code("ipma")) return Broken("iprp");
    uint32_t version_and_flags = 0;
    HEADRACE_RETURN_IF_ERROR(ParseAssociations(box.body, meta, &version_and_flags));
    if (seen.size() == 4 || std::find(seen.begin(), seen.end(), version_and_flags) != seen.end()) return Broken("iprp");
    seen.push_back(version_and_flags);
  }
  return absl::OkStatus();
}

absl::Status ParseGroups(Bytes body, Meta* meta) {
  BoxReader reader(body);
  while (!reader.empty()) {
    uint32_t type = 0;
    if (reader.Head(&type, nullptr) > reader.rest().size()) return Broken("grpl");
    reader.Version();
    reader.U32();
    const Bytes entities = reader.Take(uint64_t{4} * reader.U32());
    if (type == Code("altr")) meta->alternatives.push_back(entities);
  }
  return reader.ok() ? absl::OkStatus() : Broken("grpl");
}

absl::Status ParseMeta(Bytes body, Meta* meta) {
  BoxReader reader(body);
  reader.RequireVersion0();
  std::vector<uint32_t> seen;
  while (!reader.empty()) {
    const Box box = reader.Next();
    if (!reader.ok()) break;
    if (seen.empty() != (box.type == Code("hdlr"))) return Invalid("the box meta does not begin with its one handler");
    constexpr uint32_t kOnce[] = {Code("hdlr"), Code("iloc"), Code("pitm"), Code("idat"),
                                  Code("iprp"), Code("iinf"), Code("iref"), Code("grpl")};
    if (std::find(std::begin(kOnce), std::end(kOnce), box.type) == std::end(kOnce)) continue;
    if (std::find(seen.begin(), seen.end(), box.type) != seen.end()) return Invalid("the box meta holds a box twice");
    seen.push_back(box.type);
    absl::Status status;
    switch (box.type) {
      case Code("hdlr"): {
        uint32_t handler = 0;
        status = ParseHandler(box.body, &handler);
        if (status.ok() && handler != Code("pict")) status = Invalid("the box meta is not of pictures");
        break;
      }
      case Code("iloc"): status = ParseLocations(box.body, meta); break;
      case Code("pitm"): {
        BoxReader primary(box.body);
        const uint8_t version = primary.Version();
        if (meta->primary != 0) return Broken("pitm");
        meta->primary = static_cast<uint32_t>(primary.Number(version == 0 ? 2 : 4));
        if (!primary.ok()) status = Broken("pitm");
        break;
      }
      case Code("idat"):
        if (box.body.empty() || !meta->idat.empty()) status = Broken("idat");
        meta->idat = box.body;
        break;
      case Code("iprp"): status = ParseItemProperties(box.body, meta); break;
      case Code("iinf"): status = ParseInformation(box.body, meta); break;
      case Code("iref"): status = ParseReferences(box.body, meta); break;
      default: status = ParseGroups(box.body, meta);
    }
    HEADRACE_RETURN_IF_ERROR(status);
  }
  if (meta->items.size() > kMaxItems) return Invalid("too many items");
  return reader.ok() && !seen.empty() ? absl::OkStatus() : Broken("meta");
}

absl::Status ParseTrackHeader(Bytes body, Track* track) {
  BoxReader reader(body);
  const uint8_t version = reader.Version();
  reader.Take(version == 1 ? 16 : 8);
  track->id = reader.U32();
  reader.Take((version == 1 ? 12 : 8) + 52);
  track->width = reader.U32() >> 16;
  track->height = reader.U32() >> 16;
  return reader.ok() && version <= 1 ? absl::OkStatus() : Broken("tkhd");
}

absl::Status ParseSampleDescriptions(Bytes body, Track* track) {
  BoxReader reader(body);
  if (reader.Version() > 1) return Broken("stsd");
  const uint32_t count = reader.U32();
  for (uint32_t i = 0; i < count && reader.ok(); ++i) {
    const Box entry = reader.Next();
    if (!reader.ok() || entry.type != Code("av01")) continue;
    if (entry.body.size() < kSampleEntryBytes) return Broken("stsd");
    Properties properties;
    HEADRACE_RETURN_IF_ERROR(ParseProperties(entry.body.subspan(kSampleEntryBytes), true, &properties));
    if (!track->has_av1) track->properties = std::move(properties);
    track->has_av1 = true;
  }
  return reader.ok() ? absl::OkStatus() : Broken("stsd");
}

absl::Status ParseSampleTable(Bytes body, Track* track) {
  if (track->has_samples) return Broken("stbl");
  track->has_samples = true;
  BoxReader boxes(body);
  while (!boxes.empty()) {
    const Box box = boxes.Next();
    BoxReader reader(box.body);
    if (!boxes.ok()) break;
    if (box.type == Code("stsd")) HEADRACE_RETURN_IF_ERROR(ParseSampleDescriptions(box.body, track));
    const bool is_read = box.type == Code("stco") || box.type == Code("co64") || box.type == Code("stsc") ||
                         box.type == Code("stsz") || box.type == Code("stss") || box.type == Code("stts");
    if (!is_read) continue;
    reader.RequireVersion0();
    if (box.type == Code("stsz")) {
      const uint32_t size_of_all = reader.U32();
      if (size_of_all > 0) track->size_of_all = size_of_all;
      const uint32_t count = reader.U32();
      for (uint32_t i = 0; i < count && size_of_all == 0 && reader.ok(); ++i) track->sizes.push_back(reader.U32());
    } else {
      const uint32_t count = reader.U32();
      for (uint32_t i = 0; i < count && reader.ok(); ++i) {
        if (box.type == Code("stss") || box.type == Code("stts")) {
          reader.Take(box.type == Code("stss") ? 4 : 8);
        } else if (box.type == Code("stsc")) {
          const uint32_t first = reader.U32(), samples = reader.U32();
          reader.U32();
          if (i == 0 ? first != 1 : first <= track->runs.back().first) return Broken("stsc");
          track->runs.emplace_back(first, samples);
        } else {
          track->chunks.push_back(reader.Number(box.type == Code("co64") ? 8 : 4));
        }
      }
    }
    if (!reader.ok()) return Invalid("the table of samples is broken");
  }
  return boxes.ok() ? absl::OkStatus() : Broken("stbl");
}

absl::Status ParseEdits(Bytes body) {
  BoxReader boxes(body);
  bool seen = false;
  while (!boxes.empty()) {
    const Box box = boxes.Next();
    if (!boxes.ok() || box.type != Code("elst")) continue;
    BoxReader reader(box.body);
    uint32_t flags = 0;
    const uint8_t version = reader.Version(&flags);
    if (seen) return Broken("elst");
    seen = true;
    if ((flags & 1) == 0 && reader.ok()) continue;
    const uint32_t count = reader.U32();
    const uint64_t duration = reader.Number(version == 1 ? 8 : 4);
    if (!reader.ok() || version > 1 || count != 1 || duration == 0) return Broken("elst");
  }
  return boxes.ok() && seen ? absl::OkStatus() : Broken("edts");
}

// Of the boxes inside boxes that lead to the samples.
absl::Status ParseMedia(Bytes body, Track* track) {
  BoxReader reader(body);
  while (!reader.empty()) {
    const Box box = reader.Next();
    if (!reader.ok()) break;
    if (box.type == Code("hdlr")) HEADRACE_RETURN_IF_ERROR(ParseHandler(box.body, &track->handler));
    if (box.type == Code("minf")) {
      BoxReader inner(box.body);
      while (!inner.empty()) {
        const Box table = inner.Next();
        if (!inner.ok()) return Broken("minf");
        if (table.type == Code("stbl")) HEADRACE_RETURN_IF_ERROR(ParseSampleTable(table.body, track));
      }
    }
    if (box.type == Code("mdhd")) {
      BoxReader header(box.body);
      const uint8_t version = header.Version();
      header.Take(version == 1 ? 16 : 8);
      track->timescale = header.U32();
      header.Take(version == 1 ? 8 : 4);
      if (!header.ok() || version > 1) return Broken("mdhd");
    }
  }
  return reader.ok() ? absl::OkStatus() : Broken("mdia");
}

absl::Status ParseTrack(Bytes body, Track* track) {
  BoxReader reader(body);
  bool has_header = false, has_edits = false;
  while (!reader.empty()) {
    const Box box = reader.Next();
    if (!reader.ok()) break;
    absl::Status status;
    if (box.type == Code("tkhd")) {
      status = has_header ? Broken("trak") : ParseTrackHeader(box.body, track);
      has_header = true;
    } else if (box.type == Code("meta")) {
      status = ParseMeta(box.body, &track->meta);
    } else if (box.type == Code("mdia")) {
      status = ParseMedia(box.body, track);
    } else if (box.type == Code("tref")) {
      BoxReader references(box.body);
      while (!references.empty()) {
        const Box reference = references.Next();
        BoxReader numbers(reference.body);
        if (reference.type == Code("auxl")) track->auxiliary_for = numbers.U32();
        if (reference.type == Code("prem")) track->premultiplied_by = numbers.U32();
        if (!numbers.ok()) return Broken("tref");
      }
      if (!references.ok()) status = Broken("tref");
    } else if (box.type == Code("edts")) {
      status = has_edits ? Broken("trak") : ParseEdits(box.body);
      has_edits = true;
    }
    HEADRACE_RETURN_IF_ERROR(status);
  }
  return reader.ok() && has_header ? absl::OkStatus() : Broken("trak");
}

absl::Status ParseMovie(Bytes body, std::vector<Track>* tracks) {
  BoxReader reader(body);
  while (!reader.empty()) {
    const Box box = reader.Next();
    if (!reader.ok()) break;
    if (box.type != Code("trak")) continue;
    Track& track = tracks->emplace_back();
    HEADRACE_RETURN_IF_ERROR(ParseTrack(box.body, &track));
    if (track.handler == Code("pict") || track.handler == Code("vide") || track.handler == Code("auxv")) {
      HEADRACE_RETURN_IF_ERROR(CheckSize(track.width, track.height));
    }
  }
  return reader.ok() && !tracks->empty() ? absl::OkStatus() : Broken("moov");
}

}  // namespace

absl::Status CheckSize(uint32_t width, uint32_t height) {
  if (width == 0 || height == 0) return Invalid("width or height is 0");
  if (uint64_t{width} * height > kMaxArea || width > kMaxSide || height > kMaxSide) {
    return Invalid(absl::StrCat(width, " x ", height, " pixels are more than libavif takes"));
  }
  return absl::OkStatus();
}

const Property* Find(const Properties& properties, uint32_t type) {
  const auto found = std::find_if(properties.begin(), properties.end(), [&](const Property& one) { return one.type == type; });
  return found == properties.end() ? nullptr : &*found;
}

bool IsAlpha(const Properties& properties, uint32_t type) {
  const Property* property = Find(properties, type);
  return property != nullptr && (property->text == "urn:mpeg:mpegB:cicp:systems:auxiliary:alpha" ||
                                 property->text == "urn:mpeg:hevc:2015:auxid:1");
}

absl::StatusOr<FileType> ParseFileType(Bytes body) {
  FileType type;
  BoxReader reader(body);
  for (int i = 0; reader.ok() && (i < 2 || !reader.empty()); ++i) {
    const uint32_t brand = reader.U32();
    if (i == 0) type.major = brand;
    if (i == 1) continue;  // the version
    type.is_avif = type.is_avif || brand == Code("avif");
    type.is_avis = type.is_avis || brand == Code("avis");
    type.is_tmap = type.is_tmap || brand == Code("tmap");
  }
  if (!reader.ok()) return Broken("ftyp");
  return type;
}

absl::Status ParseFile(File* file) {
  BoxReader reader(file->bytes);
  bool has_type = false, has_meta = false, has_movie = false, has_tone_map = false;
  while (!reader.empty()) {
    Box box;
    bool to_end = false;
    const uint64_t size = reader.Head(&box.type, &to_end);
    const bool is_type = box.type == Code("ftyp"), is_meta = box.type == Code("meta"), is_movie = box.type == Code("moov");
    if (!reader.ok() || (!is_type && !has_type)) return Invalid("the boxes of the file are broken");
    if (to_end && !is_type && !is_meta && !is_movie) return CutOff();
    box.body = reader.Take(size);
    if (!reader.ok()) return CutOff();
    if (is_type) {
      if (has_type) return Broken("ftyp");
      HEADRACE_ASSIGN_OR_RETURN(file->type, ParseFileType(box.body));
      has_type = true;
    } else if (is_meta) {
      if (has_meta) return Broken("meta");
      HEADRACE_RETURN_IF_ERROR(ParseMeta(box.body, &file->meta));
      has_meta = true;
      const std::vector<Item>& items = file->meta.items;
      has_tone_map = std::any_of(items.begin(), items.end(), [](const Item& item) { return item.type == Code("tmap"); });
    } else if (is_movie) {
      if (has_movie) return Broken("moov");
      HEADRACE_RETURN_IF_ERROR(ParseMovie(box.body, &file->tracks));
      has_movie = true;
    }
    const FileType& type = file->type;
    const bool needs_meta = type.is_avif || type.is_tmap;
    if (!type.is_avif && !type.is_avis) return Invalid("neither of its brands is avif or avis");
    if ((!needs_meta || has_meta) && (!type.is_avis || has_movie) && (!type.is_tmap || has_tone_map)) return absl::OkStatus();
  }
  return CutOff();
}

}  // namespace headrace::avif
