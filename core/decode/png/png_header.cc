#include "core/decode/png/png_header.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/decode/exif.h"

namespace headrace {
namespace {

constexpr size_t kChunkHeadBytes = 8, kChecksumBytes = 4;  // length and type
constexpr size_t kMaxTextBytes = size_t{1} << 20;  // Pillow's MAX_TEXT_CHUNK
constexpr size_t kMaxAllTextBytes = 64 * kMaxTextBytes;  // MAX_TEXT_MEMORY

std::string_view Text(absl::Span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

absl::Span<const uint8_t> Bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// The inflated text, or "" when it is broken, longer than kMaxTextBytes, or `*left` bytes were used up by those before it.
std::string Inflate(std::string_view compressed, size_t* left) {
  if (*left == 0) return "";
  z_stream stream = {};
  if (inflateInit(&stream) != Z_OK) return "";
  std::string text;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(compressed.data()));
  stream.avail_in = static_cast<uInt>(compressed.size());
  char piece[4096];
  int code = Z_OK;
  while (code == Z_OK && text.size() <= kMaxTextBytes) {
    stream.next_out = reinterpret_cast<Bytef*>(piece);
    stream.avail_out = sizeof(piece);
    code = inflate(&stream, Z_NO_FLUSH);
    text.append(piece, sizeof(piece) - stream.avail_out);
  }
  inflateEnd(&stream);
  *left -= std::min(*left, text.size());
  return code == Z_STREAM_END && text.size() <= kMaxTextBytes ? text : "";
}

// Splits at the first NUL. False without one.
bool SplitAtNul(std::string_view* rest, std::string_view* head) {
  const size_t nul = rest->find('\0');
  if (nul == std::string_view::npos) return false;
  *head = rest->substr(0, nul);
  rest->remove_prefix(nul + 1);
  return true;
}

// `\nexif\n    length\nhex digits over many lines`: the bytes behind the third line break.
std::vector<uint8_t> ParseRawProfile(std::string_view text) {
  for (int line = 0; line < 3; ++line) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
  std::vector<uint8_t> bytes;
  int high = -1;
  for (const char c : text) {
    int digit;
    if (c >= '0' && c <= '9')
      digit = c - '0';
    else if (c >= 'a' && c <= 'f')
      digit = c - 'a' + 10;
    else if (c >= 'A' && c <= 'F')
      digit = c - 'A' + 10;
    else if (c == ' ' || c == '\n' || c == '\r' || c == '\t')
      continue;
    else
      return {};
    if (high < 0) {
      high = digit;
    } else {
      bytes.push_back(static_cast<uint8_t>(high << 4 | digit));
      high = -1;
    }
  }
  return bytes;
}

// What the chunks say about the orientation; later chunks replace earlier ones, as in Pillow.
struct Metadata {
  absl::Span<const uint8_t> exif;
  bool has_exif = false;
  std::string raw_profile;
  std::string xmp;
  size_t inflated_left = kMaxAllTextBytes;  // a file can hold thousands of texts that each inflate to a thousand times their size

  void AddText(std::string_view key, std::string_view text) {
    if (key == "Raw profile type exif") raw_profile = std::string(text);
    if (key == "XML:com.adobe.xmp") xmp = std::string(text);
  }

  static bool Wanted(std::string_view key) {
    return key == "Raw profile type exif" || key == "XML:com.adobe.xmp";
  }

  void AddChunk(std::string_view type, absl::Span<const uint8_t> body) {
    std::string_view rest = Text(body), key;
    if (type == "eXIf") {
      exif = body;
      has_exif = true;
    } else if (type == "tEXt") {
      if (!SplitAtNul(&rest, &key)) return;
      if (key == "exif") {
        exif = Bytes(rest);
        has_exif = true;
      } else {
        AddText(key, rest);
      }
    } else if (type == "zTXt") {
      if (!SplitAtNul(&rest, &key) || !Wanted(key) || rest.empty() || rest[0] != 0) return;
      AddText(key, Inflate(rest.substr(1), &inflated_left));
    } else if (type == "iTXt") {
      AddInternationalText(rest);
    }
  }

  void AddInternationalText(std::string_view rest) {
    std::string_view key, language, translated;
    if (!SplitAtNul(&rest, &key) || !Wanted(key) || rest.size() < 2) return;
    const bool compressed = rest[0] != 0;
    const bool known_method = rest[1] == 0;
    rest.remove_prefix(2);
    if (!SplitAtNul(&rest, &language) || !SplitAtNul(&rest, &translated)) return;
    if (!compressed) {
      AddText(key, rest);
    } else if (known_method) {
      AddText(key, Inflate(rest, &inflated_left));
    }
  }

  int Orientation() const {
    int found = 0;
    if (has_exif) {
      found = ExifOrientation(exif);
    } else if (!raw_profile.empty()) {
      found = ExifOrientation(ParseRawProfile(raw_profile));
    }
    return found != 0 ? found : XmpOrientation(Bytes(xmp));
  }
};

// Channels of a colour type if `bits` is allowed with it, else 0 (table 11.1 of the standard).
int Channels(int colour_type, int bits) {
  const bool deep = bits == 8 || bits == 16;
  const bool shallow = bits == 1 || bits == 2 || bits == 4;
  switch (colour_type) {
    case 0:
      return deep || shallow ? 1 : 0;
    case 2:
      return deep ? 3 : 0;
    case 3:
      return shallow || bits == 8 ? 3 : 0;
    case 4:
      return deep ? 2 : 0;
    case 6:
      return deep ? 4 : 0;
    default:
      return 0;
  }
}

}  // namespace

absl::Status InvalidPng(const std::string& reason) { return absl::InvalidArgumentError(absl::StrCat("PNG: ", reason)); }

bool IsPng(absl::Span<const uint8_t> bytes) {
  return bytes.size() >= sizeof(kPngSignature) && std::memcmp(bytes.data(), kPngSignature, sizeof(kPngSignature)) == 0;
}

bool TakePngChunk(absl::Span<const uint8_t>* bytes, PngChunk* chunk) {
  if (bytes->size() < kChunkHeadBytes) return false;
  const uint64_t length = PngNumber(bytes->data());
  chunk->is_whole = kChunkHeadBytes + length + kChecksumBytes <= bytes->size();
  chunk->bytes = bytes->first(std::min<uint64_t>(kChunkHeadBytes + length + kChecksumBytes, bytes->size()));
  chunk->type = Text(chunk->bytes.subspan(4, 4));
  chunk->body = chunk->bytes.subspan(kChunkHeadBytes, length);
  bytes->remove_prefix(chunk->bytes.size());
  return true;
}

bool PngChunk::HasRightChecksum() const {
  const size_t counted = bytes.size() - 4 - kChecksumBytes;  // type and body
  return crc32_z(0, bytes.data() + 4, counted) == PngNumber(bytes.data() + 4 + counted);
}

absl::StatusOr<PngIhdr> ReadIhdr(const PngChunk& chunk) {
  if (!chunk.is_whole || chunk.body.size() < 13) return InvalidPng("no IHDR chunk of 13 bytes");
  if (!chunk.HasRightChecksum()) return InvalidPng("wrong checksum of IHDR");
  const uint8_t* body = chunk.body.data();
  PngIhdr ihdr;
  ihdr.width = PngNumber(body);
  ihdr.height = PngNumber(body + 4);
  ihdr.bits = body[8];
  ihdr.colour_type = body[9];
  ihdr.channels = static_cast<uint8_t>(Channels(ihdr.colour_type, ihdr.bits));
  ihdr.interlaced = body[12] != 0;
  if (ihdr.width == 0 || ihdr.height == 0) return InvalidPng("width or height is 0");
  if ((ihdr.width | ihdr.height) >> 31 != 0) return InvalidPng("width or height is above 2^31 - 1");
  if (ihdr.channels == 0) {
    return InvalidPng(absl::StrCat("colour type ", int{ihdr.colour_type}, " with ", int{ihdr.bits}, " bits"));
  }
  if (body[11] != 0) return InvalidPng("unknown filter method");
  return ihdr;
}

absl::StatusOr<ImageInfo> ReadPngHeader(absl::Span<const uint8_t> bytes) {
  bytes.remove_prefix(sizeof(kPngSignature));
  PngIhdr ihdr;
  // Only lengths and types are read of most chunks; a file that is cut off shows when it is
  // decoded.
  Metadata metadata;
  bool has_image = false;
  for (PngChunk chunk; TakePngChunk(&bytes, &chunk) && chunk.type != "IEND";) {
    has_image |= chunk.type == "IDAT";
    if (chunk.type == "IHDR" && !has_image) {
      HEADRACE_ASSIGN_OR_RETURN(ihdr, ReadIhdr(chunk));
    }
    if (chunk.is_whole) metadata.AddChunk(chunk.type, chunk.body);
  }
  if (ihdr.channels == 0) return InvalidPng("no IHDR chunk");
  ImageInfo info;
  info.format = ImageFormat::kPng;
  info.width = ihdr.width;
  info.height = ihdr.height;
  info.components = ihdr.channels;
  info.orientation = static_cast<uint8_t>(metadata.Orientation());
  return info;
}

}  // namespace headrace
