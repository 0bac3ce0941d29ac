// The boxes of an AVIF file as they stand there: items, their properties and references, tracks. What is refused is what libavif 1.4
// refuses (src/read.c there). The input is hostile.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/decode/avif/box_reader.h"

namespace headrace::avif {

inline absl::Status Invalid(const std::string& reason) { return absl::InvalidArgumentError(absl::StrCat("AVIF: ", reason)); }
inline absl::Status Broken(const char* box) { return Invalid(absl::StrCat("the box ", box, " is broken")); }
inline absl::Status CutOff() { return Invalid("the file is cut off"); }
// Refuses what libavif finds too large.
absl::Status CheckSize(uint32_t width, uint32_t height);

// What the values of a property are:
//   ispe: width, height            colr: kCicp, primaries, matrix, full range; or kIcc
//   av1C: its second and third byte  pixi: depth       irot, imir, a1op, lsel: the one number       a1lx: three sizes
struct Property {
  uint32_t type = 0;
  bool known = true;
  uint32_t values[4] = {};
  std::string_view text;  // of auxC; of clap its bytes
};
constexpr uint32_t kIcc = 1, kCicp = 2;
using Properties = std::vector<Property>;

inline int DepthOf(uint32_t av1c) { return (av1c & 0x20) != 0 ? 12 : (av1c & 0x40) != 0 ? 10 : 8; }
inline bool IsMonochrome(uint32_t av1c) { return (av1c & 0x10) != 0; }

// The first of a type; null when there is none.
const Property* Find(const Properties& properties, uint32_t type);
// Whether the first property of that type, auxC or auxi, says alpha.
bool IsAlpha(const Properties& properties, uint32_t type);

struct Item {
  uint32_t id = 0, type = 0;
  uint64_t size = 0;
  bool in_idat = false;
  std::vector<std::pair<uint64_t, uint64_t>> extents;  // offset, length; none is empty
  Properties properties;
  std::string_view content_type;
  uint32_t thumbnail_for = 0, auxiliary_for = 0, describes = 0, premultiplied_by = 0;
  uint32_t part_of = 0, part = 0;  // of a derived picture
  bool is_placed = false, has_parts = false, has_associations = false, needs_more = false;  // an essential property that nobody here knows

  bool is_picture() const {
    return size > 0 && !needs_more && (type == Code("av01") || type == Code("grid")) && thumbnail_for == 0;
  }
};

struct Meta {
  std::vector<Item> items;
  std::map<uint32_t, size_t> index;
  Properties properties;
  Bytes idat;
  uint32_t primary = 0;
  size_t associations = 0;          // of all items with properties
  std::vector<Bytes> alternatives;  // groups of items, each the numbers of its items

  Item& Get(uint32_t id) {
    const auto [at, is_new] = index.emplace(id, items.size());
    if (is_new) items.emplace_back().id = id;
    return items[at->second];
  }
};

struct Track {
  uint32_t id = 0, auxiliary_for = 0, premultiplied_by = 0;
  uint32_t width = 0, height = 0, handler = 0, timescale = 0;
  bool has_samples = false, has_av1 = false;
  std::vector<uint64_t> chunks;
  std::vector<std::pair<uint32_t, uint32_t>> runs;  // first chunk, samples in each
  std::vector<uint32_t> sizes;
  uint32_t size_of_all = 0;
  Properties properties;
  Meta meta;
};

struct FileType {
  uint32_t major = 0;
  bool is_avif = false, is_avis = false, is_tmap = false;
};

struct File {
  Bytes bytes;
  FileType type;
  Meta meta;
  std::vector<Track> tracks;
};

absl::StatusOr<FileType> ParseFileType(Bytes body);

// Reads `file->bytes` as far as the brands need it: what follows is not looked at.
absl::Status ParseFile(File* file);

}  // namespace headrace::avif
