#include "core/decode/avif/avif_container.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "core/decode/avif/avif_boxes.h"
#include "core/decode/avif/avif_items.h"
#include "core/decode/exif.h"
#include "core/shard/format.h"

namespace headrace {
namespace {

using namespace avif;  // NOLINT

constexpr uint64_t kMaxSamples = 12 * 3600 * 60;  // libavif's limit
// Ours. Items may share bytes of the file, and a small file must not cost minutes.
constexpr int kMaxBlocks = 64;  // of EXIF and XMP
constexpr uint64_t kMaxShared = 16, kMinShared = uint64_t{64} << 20;  // times the file, bytes

absl::StatusOr<AvifTile> TileOf(const File& file, const Item& item) {
  AvifTile tile;
  if (const Property* extent = Find(item.properties, Code("ispe"))) {
    tile.width = extent->values[0];
    tile.height = extent->values[1];
  }
  if (const Property* point = Find(item.properties, Code("a1op"))) tile.operating_point = static_cast<int>(point->values[0]);
  // The sizes of the layers; what is left is the last one's.
  std::vector<uint64_t> layers;
  if (const Property* sizes = Find(item.properties, Code("a1lx"))) {
    uint64_t rest = item.size;
    for (int i = 0; i < 3; ++i) {
      const uint64_t size = sizes->values[i];
      if (size >= rest && size != 0) return Broken("a1lx");
      layers.push_back(size == 0 ? rest : size);
      rest -= layers.back();
      if (size == 0) break;
    }
    if (rest > 0) layers.push_back(rest);
  }
  uint64_t wanted = item.size;
  const Property* layer = Find(item.properties, Code("lsel"));
  if (layer != nullptr && layer->values[0] != 0xFFFF) {
    tile.layer = static_cast<int>(layer->values[0]);
    if (!layers.empty()) {
      if (layer->values[0] >= layers.size()) return Broken("lsel");
      wanted = 0;
      for (int i = 0; i <= tile.layer; ++i) wanted += layers[static_cast<size_t>(i)];
    }
  }
  if (wanted == 0) return CutOff();
  HEADRACE_ASSIGN_OR_RETURN(tile.pieces, PiecesOf(file, file.meta, item, wanted));
  return tile;
}

// Checks a coded picture against the properties that promise something about it.
absl::Status CheckProperties(const Properties& properties, uint32_t config) {
  const Property* depth = Find(properties, Code("pixi"));
  if (depth != nullptr && static_cast<int>(depth->values[0]) != DepthOf(config)) return Invalid("pixi and av1C have different depths");
  return absl::OkStatus();
}

// `tiles`: the items of a grid in its order. All have the first one's configuration.
absl::Status AddTiles(const File& file, const std::vector<const Item*>& tiles, AvifPlanes* planes, uint32_t* config) {
  for (const Item* item : tiles) {
    if (item == nullptr || item->type != Code("av01") || item->needs_more) return Invalid("a tile of the grid is not AV1");
    const Property* own = Find(item->properties, Code("av1C"));
    if (own == nullptr || (item != tiles[0] && own->values[0] != *config)) return Invalid("the tiles of the grid are of different kinds");
    *config = own->values[0];
    HEADRACE_ASSIGN_OR_RETURN(AvifTile tile, TileOf(file, *item));
    planes->tiles.push_back(std::move(tile));
  }
  return absl::OkStatus();
}

absl::Status AddPlanes(const File& file, const Item& item, AvifPlanes* planes, uint32_t* config) {
  if (item.type == Code("grid")) {
    HEADRACE_ASSIGN_OR_RETURN(const std::vector<uint8_t> content, ContentOf(file, file.meta, item));
    HEADRACE_RETURN_IF_ERROR(ParseGrid(content, planes));
    HEADRACE_RETURN_IF_ERROR(CheckSize(planes->width, planes->height));
    HEADRACE_RETURN_IF_ERROR(AddTiles(file, PartsOf(file.meta, item.id, size_t{planes->rows} * planes->columns), planes, config));
    return CheckProperties(item.properties, *config);
  }
  const Property* own = Find(item.properties, Code("av1C"));
  if (own == nullptr) return Invalid("no av1C");
  *config = own->values[0];
  HEADRACE_ASSIGN_OR_RETURN(AvifTile tile, TileOf(file, item));
  planes->width = tile.width;
  planes->height = tile.height;
  planes->tiles.push_back(std::move(tile));
  return CheckProperties(item.properties, *config);
}

// Alpha of a grid may also be that of each of its tiles; if one of them has none, there is none.
absl::Status AddAlphaOfTiles(const File& file, const Item& colour, const AvifPlanes& grid, AvifPlanes* alpha) {
  std::map<uint32_t, const Item*> alpha_of;
  for (const Item& item : file.meta.items) {
    if (item.auxiliary_for == 0 || !IsAlpha(item.properties, Code("auxC"))) continue;
    const auto [at, is_new] = alpha_of.emplace(item.auxiliary_for, &item);
    if (!is_new || item.part_of != 0) at->second = nullptr;
  }
  std::vector<const Item*> tiles = PartsOf(file.meta, colour.id, grid.tiles.size());
  for (const Item*& tile : tiles) {
    const auto found = alpha_of.find(tile->id);
    if (found == alpha_of.end()) return absl::OkStatus();
    if (found->second == nullptr) return Invalid("a tile of the grid has two alphas");
    tile = found->second;
  }
  alpha->columns = grid.columns;
  alpha->rows = grid.rows;
  alpha->width = grid.width;
  alpha->height = grid.height;
  uint32_t config = 0;
  return AddTiles(file, tiles, alpha, &config);
}

// Pillow's irot_imir_to_exif_orientation: first irot turns anticlockwise, then imir swaps left and right (1) or top and bottom (0).
int OrientationOf(const Properties& properties) {
  const Property *turn = Find(properties, Code("irot")), *mirror = Find(properties, Code("imir"));
  const uint32_t angle = turn == nullptr ? 0 : turn->values[0];
  constexpr int kTurned[] = {1, 8, 3, 6}, kLeftRight[] = {2, 7, 4, 5}, kTopBottom[] = {4, 5, 2, 7};
  if (mirror == nullptr) return kTurned[angle];
  return (mirror->values[0] == 1 ? kLeftRight : kTopBottom)[angle];
}

// Of an `Exif` item: four bytes that say how far behind them the TIFF header is. libavif refuses other numbers, Pillow other
// bytes before the header than its "Exif\0\0".
absl::StatusOr<int> OrientationOfExif(Bytes content) {
  BoxReader reader(content);
  const uint32_t offset = reader.U32();
  Bytes block = reader.rest();
  size_t at = 0;
  const auto is_header = [&] {
    return std::memcmp(&block[at], "MM\0*", 4) == 0 || std::memcmp(&block[at], "II*\0", 4) == 0;
  };
  while (at + 4 < block.size() && !is_header()) ++at;
  if (!reader.ok() || at + 4 >= block.size() || at != offset) return Invalid("the EXIF block is broken");
  constexpr std::string_view kPrefix("Exif\0\0", 6);
  while (block.size() >= kPrefix.size() && std::memcmp(block.data(), kPrefix.data(), kPrefix.size()) == 0) {
    block.remove_prefix(kPrefix.size());
    at -= std::min(at, kPrefix.size());
  }
  if (at != 0) return Invalid("the EXIF block is broken");
  return ExifOrientation(block);
}

// `of`: the item that is described; 0 in a track, where everything is about the track.
absl::Status SetOrientation(const File& file, const Meta& meta, uint32_t of, const Properties& properties, AvifPicture* picture) {
  int in_exif = 0, in_xmp = 1, blocks = 0;
  for (const Item& item : meta.items) {
    if (item.size == 0 || item.needs_more || (of != 0 && item.describes != of)) continue;
    const bool is_exif = item.type == Code("Exif");
    if (!is_exif && (item.type != Code("mime") || item.content_type != "application/rdf+xml")) continue;
    if (++blocks > kMaxBlocks) return Invalid("too many EXIF and XMP blocks");
    HEADRACE_ASSIGN_OR_RETURN(const std::vector<uint8_t> content, ContentOf(file, meta, item));
    if (is_exif) {
      HEADRACE_ASSIGN_OR_RETURN(in_exif, OrientationOfExif(content));
    } else {
      in_xmp = XmpOrientation(content);
    }
  }
  const int turned = OrientationOf(properties);
  picture->orientation = static_cast<uint8_t>(turned != 1 || in_exif != 0 ? turned : in_xmp);
  return absl::OkStatus();
}

absl::Status SetColour(const Properties& properties, AvifPicture* picture) {
  for (const Property& property : properties) {
    if (property.type != Code("colr") || property.values[0] != kCicp) continue;
    picture->has_colour_property = true;
    picture->property.primaries = static_cast<int>(property.values[1]);
    picture->property.matrix = static_cast<int>(property.values[2]);
    picture->property.full_range = property.values[3] != 0;
  }
  return CheckColours(properties);
}

// Of the items of a sequence too.
absl::Status CheckExtents(const Meta& meta) {
  for (const Item& item : meta.items) {
    if (!item.is_picture()) continue;
    const Property* extent = Find(item.properties, Code("ispe"));
    if (extent == nullptr) return Invalid("an item without ispe");
    HEADRACE_RETURN_IF_ERROR(CheckSize(extent->values[0], extent->values[1]));
  }
  return absl::OkStatus();
}

// Alpha is turned and cut like the colours, or says nothing about it.
absl::Status CheckAlphaTurns(const Properties& colour, const Properties& alpha) {
  bool says_any = false, differs = false;
  for (const uint32_t type : {Code("clap"), Code("irot"), Code("imir")}) {
    const Property *ours = Find(colour, type), *own = Find(alpha, type);
    says_any = says_any || own != nullptr;
    differs = differs || (own == nullptr) != (ours == nullptr) ||
              (own != nullptr && (own->values[0] != ours->values[0] || own->text != ours->text));
  }
  return says_any && differs ? Invalid("alpha is turned or cut otherwise than the colours") : absl::OkStatus();
}

absl::StatusOr<AvifPicture> PictureOfItems(const File& file) {
  const Meta& meta = file.meta;
  const Item *colour = nullptr, *alpha = nullptr;
  for (const Item& item : meta.items) {
    if (!item.is_picture()) continue;
    if (item.id == meta.primary) colour = &item;
    if (alpha == nullptr && item.auxiliary_for == meta.primary && IsAlpha(item.properties, Code("auxC"))) alpha = &item;
  }
  if (meta.primary == 0 || colour == nullptr) return Invalid("no primary item that is AV1");
  if (file.type.is_tmap) HEADRACE_RETURN_IF_ERROR(CheckGainMap(file, *colour));
  AvifPicture picture;
  uint32_t config = 0, alpha_config = 0;
  HEADRACE_RETURN_IF_ERROR(AddPlanes(file, *colour, &picture.colour, &config));
  const Property* extent = Find(colour->properties, Code("ispe"));
  picture.width = extent->values[0];
  picture.height = extent->values[1];
  if (alpha != nullptr) {
    HEADRACE_RETURN_IF_ERROR(AddPlanes(file, *alpha, &picture.alpha, &alpha_config));
    HEADRACE_RETURN_IF_ERROR(CheckAlphaTurns(colour->properties, alpha->properties));
    picture.premultiplied = colour->premultiplied_by == alpha->id;
  } else if (colour->type == Code("grid")) {
    HEADRACE_RETURN_IF_ERROR(AddAlphaOfTiles(file, *colour, picture.colour, &picture.alpha));
  }
  HEADRACE_RETURN_IF_ERROR(SetOrientation(file, meta, colour->id, colour->properties, &picture));
  HEADRACE_RETURN_IF_ERROR(SetColour(colour->properties, &picture));
  picture.monochrome = IsMonochrome(config);
  return picture;
}

// The first sample of a track; all of them must lie in the file.
absl::Status AddFirstSample(const File& file, const Track& track, AvifPlanes* planes) {
  uint64_t number = 0;
  size_t run = 0;
  AvifTile tile;
  tile.width = planes->width = track.width;
  tile.height = planes->height = track.height;
  for (size_t chunk = 0; chunk < track.chunks.size(); ++chunk) {
    while (run + 1 < track.runs.size() && track.runs[run + 1].first <= chunk + 1) ++run;
    const uint32_t samples = track.runs.empty() ? 0 : track.runs[run].second;
    if (samples == 0 || samples > kMaxSamples - number) return Invalid("a chunk has no samples or too many");
    uint64_t offset = track.chunks[chunk];
    for (uint32_t i = 0; i < samples; ++i, ++number) {
      if (track.size_of_all == 0 && number >= track.sizes.size()) return Invalid("the table of samples is cut off");
      const uint64_t size = track.size_of_all != 0 ? track.size_of_all : track.sizes[static_cast<size_t>(number)];
      if (size == 0 || offset > file.bytes.size() || size > file.bytes.size() - offset) return CutOff();
      if (number == 0) tile.pieces = {file.bytes.subspan(static_cast<size_t>(offset), static_cast<size_t>(size))};
      offset += size;
    }
  }
  planes->tiles.push_back(std::move(tile));
  return absl::OkStatus();
}

absl::StatusOr<AvifPicture> PictureOfTracks(const File& file) {
  const auto is_used = [](const Track& track) { return track.has_samples && track.id != 0 && !track.chunks.empty() && track.has_av1; };
  const auto colour = std::find_if(file.tracks.begin(), file.tracks.end(),
                                   [&](const Track& track) { return is_used(track) && track.auxiliary_for == 0; });
  if (colour == file.tracks.end()) return Invalid("no track of pictures");
  if (colour->timescale == 0) return Invalid("the track has no time scale");  // Pillow divides by it
  const auto alpha = std::find_if(file.tracks.begin(), file.tracks.end(), [&](const Track& track) {
    const bool other = Find(track.properties, Code("auxi")) != nullptr && !IsAlpha(track.properties, Code("auxi"));
    return is_used(track) && !other && track.auxiliary_for == colour->id;
  });
  AvifPicture picture;
  HEADRACE_RETURN_IF_ERROR(CheckSize(colour->width, colour->height));
  picture.width = colour->width;
  picture.height = colour->height;
  HEADRACE_RETURN_IF_ERROR(AddFirstSample(file, *colour, &picture.colour));
  if (alpha != file.tracks.end()) {
    HEADRACE_RETURN_IF_ERROR(CheckSize(alpha->width, alpha->height));
    HEADRACE_RETURN_IF_ERROR(AddFirstSample(file, *alpha, &picture.alpha));
    picture.premultiplied = colour->premultiplied_by == alpha->id;
  }
  const Property* config = Find(colour->properties, Code("av1C"));
  if (config == nullptr) return Invalid("no av1C");
  HEADRACE_RETURN_IF_ERROR(SetOrientation(file, colour->meta, 0, colour->properties, &picture));
  HEADRACE_RETURN_IF_ERROR(SetColour(colour->properties, &picture));
  picture.monochrome = IsMonochrome(config->values[0]);
  return picture;
}

// What is decoded is not much more than what is shown.
absl::Status CheckTiles(const AvifPicture& picture, size_t file_bytes) {
  const AvifPlanes &colour = picture.colour, &alpha = picture.alpha;
  // Tiles of two columns and two rows have less than four times the picture's pixels; those of one can be cut to any part of them.
  const uint64_t most = kMaxImagePixels + 4 * uint64_t{colour.width} * colour.height;
  uint64_t bytes = 0;
  for (const AvifPlanes* planes : {&colour, &alpha}) {
    uint64_t pixels = 0;
    for (const AvifTile& tile : planes->tiles) {
      for (const Bytes piece : tile.pieces) bytes += piece.size();
      pixels += uint64_t{tile.width} * tile.height;
    }
    if (pixels > most) return Invalid("the tiles of the grid are much larger than the picture");
  }
  if (bytes > kMinShared + kMaxShared * file_bytes) return Invalid("the tiles of the grid use the same bytes too often");
  if (!alpha.tiles.empty() && (alpha.width != colour.width || alpha.height != colour.height)) {
    return Invalid("alpha has another size than the colours");
  }
  return absl::OkStatus();
}

}  // namespace

bool IsAvif(absl::Span<const uint8_t> bytes) {
  BoxReader reader(bytes);
  const uint32_t size = reader.U32(), type = reader.U32(), major = reader.U32();
  if (!reader.ok() || type != Code("ftyp")) return false;
  if (major == Code("avif") || major == Code("avis")) return true;
  if (major != Code("mif1") && major != Code("msf1")) return false;
  const absl::StatusOr<FileType> brands = ParseFileType(bytes.subspan(8, std::max(size, 8u) - 8));
  return brands.ok() && (brands->is_avif || brands->is_avis);
}

absl::StatusOr<AvifPicture> ParseAvif(absl::Span<const uint8_t> bytes) {
  File file;
  file.bytes = bytes;
  HEADRACE_RETURN_IF_ERROR(ParseFile(&file));
  HEADRACE_RETURN_IF_ERROR(CheckExtents(file.meta));
  // The major brand decides; else a sequence comes first.
  const bool of_tracks = file.type.major == Code("avis") || (file.type.major != Code("avif") && !file.tracks.empty());
  HEADRACE_ASSIGN_OR_RETURN(AvifPicture picture, of_tracks ? PictureOfTracks(file) : PictureOfItems(file));
  HEADRACE_RETURN_IF_ERROR(CheckTiles(picture, bytes.size()));
  return picture;
}

}  // namespace headrace
