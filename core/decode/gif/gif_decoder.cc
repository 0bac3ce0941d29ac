#include "core/decode/gif/gif_decoder.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace headrace {
namespace {

constexpr size_t kScreenBytes = 13, kFrameBytes = 9;
constexpr int kMaxCodeBits = 12;
constexpr int kTableCodes = 1 << kMaxCodeBits;

absl::Status Invalid(const std::string& reason) { return absl::InvalidArgumentError(absl::StrCat("GIF: ", reason)); }
absl::Status CutOff() { return Invalid("the file is cut off"); }

struct Gif {
  int width = 0, height = 0;  // of the screen with the frame in it
  Rect frame;
  bool interlaced = false;
  int transparent = 0;  // index of the colour around the frame
  uint8_t palette[256][3] = {};
  int code_bits = 0;  // of a pixel
  absl::Span<const uint8_t> data;  // blocks
};

// Takes what a file says from the front of its bytes.
class Reader {
 public:
  explicit Reader(absl::Span<const uint8_t> rest) : rest_(rest) {}
  absl::Span<const uint8_t> rest() const { return rest_; }

  // As many bytes as there are, at most `count`.
  absl::Span<const uint8_t> Take(size_t count) {
    const absl::Span<const uint8_t> taken = rest_.subspan(0, count);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  // A length and so many bytes. Empty at the end of a chain of blocks, and of the file.
  absl::Span<const uint8_t> TakeBlock() {
    const absl::Span<const uint8_t> length = Take(1);
    return length.empty() ? length : Take(length[0]);
  }

 private:
  absl::Span<const uint8_t> rest_;
};

int U16(const uint8_t* p) { return p[0] | p[1] << 8; }

// Replaces `palette` unless the file's is index = grey, at which Pillow does not look. False when the file ends in it.
bool ReadPalette(uint8_t flags, Reader* reader, uint8_t (*palette)[3]) {
  const size_t bytes = size_t{6} << (flags & 7);
  const absl::Span<const uint8_t> colours = reader->Take(bytes);
  if (colours.size() < bytes) return false;
  bool grey = true;
  for (size_t i = 0; i < bytes; ++i) grey = grey && colours[i] == i / 3;
  if (grey) return true;
  std::memset(palette, 0, 256 * 3);
  std::memcpy(palette, colours.data(), bytes);
  return true;
}

absl::StatusOr<Gif> Parse(absl::Span<const uint8_t> bytes) {
  Reader reader(bytes);
  const absl::Span<const uint8_t> screen = reader.Take(kScreenBytes);
  if (screen.size() < kScreenBytes) return CutOff();
  Gif gif;
  gif.width = U16(&screen[6]);
  gif.height = U16(&screen[8]);
  for (int i = 0; i < 256; ++i) std::memset(gif.palette[i], i, 3);
  if ((screen[10] & 0x80) != 0 && !ReadPalette(screen[10], &reader, gif.palette)) return CutOff();
  for (;;) {
    const absl::Span<const uint8_t> kind = reader.Take(1);
    if (kind.empty() || kind[0] == ';') return Invalid("no picture");
    if (kind[0] == ',') break;
    if (kind[0] != '!') continue;
    const absl::Span<const uint8_t> label = reader.Take(1);
    if (label.empty()) return CutOff();
    absl::Span<const uint8_t> block = reader.TakeBlock();
    if (label[0] == 0xF9 && !block.empty()) {
      const bool has_transparent = (block[0] & 1) != 0;
      if (block.size() < (has_transparent ? 4 : 3)) return Invalid("a graphic control extension is too short");
      if (has_transparent) gif.transparent = block[3];
    }
    // Pillow reads on behind an empty block, but not in comments.
    if (label[0] == 0xFE && block.empty()) continue;
    constexpr std::string_view kLoops = "NETSCAPE2.0";  // behind which it takes the count for granted
    const bool loops = block.size() >= kLoops.size() && std::memcmp(block.data(), kLoops.data(), kLoops.size()) == 0;
    if (label[0] == 0xFF && loops) reader.TakeBlock();
    do {
      block = reader.TakeBlock();
    } while (!block.empty());
  }
  const absl::Span<const uint8_t> frame = reader.Take(kFrameBytes);
  if (frame.size() < kFrameBytes) return CutOff();
  gif.frame = {U16(&frame[2]), U16(&frame[0]), U16(&frame[6]), U16(&frame[4])};
  if (gif.frame.width == 0 || gif.frame.height == 0) return Invalid("the frame's width or height is 0");
  gif.width = std::max(gif.width, gif.frame.left + gif.frame.width);
  gif.height = std::max(gif.height, gif.frame.top + gif.frame.height);
  gif.interlaced = (frame[8] & 0x40) != 0;
  if ((frame[8] & 0x80) != 0 && !ReadPalette(frame[8], &reader, gif.palette)) return CutOff();
  const absl::Span<const uint8_t> code_bits = reader.Take(1);
  if (code_bits.empty()) return CutOff();
  gif.code_bits = code_bits[0];
  if (gif.code_bits > kMaxCodeBits) return Invalid("codes of more than 12 bits");
  gif.data = reader.rest();
  return gif;
}

// LZW codes out of a chain of blocks. Empty blocks are passed over.
class Codes {
 public:
  explicit Codes(absl::Span<const uint8_t> blocks) : reader_(blocks) {}

  // False when the blocks are at their end; one that is cut off does not count.
  bool Next(int bits, int* code) {
    while (held_bits_ < bits) {
      while (block_.empty()) {
        const absl::Span<const uint8_t> rest = reader_.rest();
        if (rest.empty() || rest.size() - 1 < rest[0]) return false;
        block_ = reader_.TakeBlock();
      }
      held_ |= uint32_t{block_[0]} << held_bits_;
      held_bits_ += 8;
      block_.remove_prefix(1);
    }
    *code = static_cast<int>(held_ & ((1u << bits) - 1));
    held_ >>= bits;
    held_bits_ -= bits;
    return true;
  }

 private:
  Reader reader_;
  absl::Span<const uint8_t> block_;
  uint32_t held_ = 0;
  int held_bits_ = 0;
};

// The indices of the frame's first `rows` rows in the order of the file, row by row.
absl::Status Decompress(const Gif& gif, size_t wanted, std::vector<uint8_t>* indices) {
  const int clear = 1 << gif.code_bits, end = clear + 1;
  uint8_t last_of[kTableCodes];   // a code's last byte …
  uint16_t before[kTableCodes];  // … and the code of the bytes before it
  uint8_t text[kTableCodes + 1];   // a code's bytes, filled from the back
  int next = 0, bits = 0, previous = -1;
  uint8_t first = 0;  // byte of the previous code
  Codes codes(gif.data);
  indices->clear();
  const auto restart = [&] {
    next = clear + 2;
    bits = gif.code_bits + 1;
    previous = -1;
  };
  restart();
  while (indices->size() < wanted) {
    int code;
    if (!codes.Next(bits, &code)) return CutOff();
    if (code == end) return Invalid("the picture's data end too early");
    if (code == clear) {
      restart();
      continue;
    }
    if (code > (previous < 0 ? clear : next)) return Invalid("the picture's data are broken");
    size_t at = kTableCodes + 1;
    int link = code;
    if (previous >= 0 && code == next) {  // the previous text and its own first byte
      text[--at] = first;
      link = previous;
    }
    while (link >= clear) {
      if (at <= 1 || link >= kTableCodes) return Invalid("the picture's data are broken");
      text[--at] = last_of[link];
      link = before[link];
    }
    first = text[--at] = static_cast<uint8_t>(link);
    if (previous >= 0 && next < kTableCodes) {
      last_of[next] = first;
      before[next] = static_cast<uint16_t>(previous);
      if (next == (1 << bits) - 1 && bits < kMaxCodeBits) ++bits;
      ++next;
    }
    previous = code;
    const size_t count = std::min(sizeof(text) - at, wanted - indices->size());
    indices->insert(indices->end(), text + at, text + at + count);
  }
  return absl::OkStatus();
}

// Which row of the file is row y of an interlaced frame.
int StoredRow(int y, int height) {
  const auto rows = [height](int from, int step) { return height > from ? (height - from + step - 1) / step : 0; };
  if (y % 8 == 0) return y / 8;
  if (y % 8 == 4) return rows(0, 8) + y / 8;
  if (y % 4 == 2) return rows(0, 8) + rows(4, 8) + y / 4;
  return rows(0, 8) + rows(4, 8) + rows(2, 4) + y / 2;
}

}  // namespace

bool IsGif(absl::Span<const uint8_t> bytes) {
  return bytes.size() >= 6 && (std::memcmp(bytes.data(), "GIF87a", 6) == 0 || std::memcmp(bytes.data(), "GIF89a", 6) == 0);
}

absl::StatusOr<ImageInfo> ReadGifHeader(absl::Span<const uint8_t> bytes) {
  HEADRACE_ASSIGN_OR_RETURN(const Gif gif, Parse(bytes));
  ImageInfo info;
  info.format = ImageFormat::kGif;
  info.width = static_cast<uint32_t>(gif.width);
  info.height = static_cast<uint32_t>(gif.height);
  return info;
}

absl::Status DecodeGif(absl::Span<const uint8_t> bytes, const ImageInfo& info, const Rect& region, std::vector<uint8_t>* scratch,
                       RgbImage* out) {
  HEADRACE_ASSIGN_OR_RETURN(const Gif gif, Parse(bytes));
  if (static_cast<uint32_t>(gif.width) != info.width || static_cast<uint32_t>(gif.height) != info.height) {
    return Invalid("the picture has another size than the index says");
  }
  const Rect& frame = gif.frame;
  // Of a frame that is not interlaced the rows below the region are not needed.
  const int rows = gif.interlaced ? frame.height : std::clamp(region.top + region.height - frame.top, 0, frame.height);
  HEADRACE_RETURN_IF_ERROR(Decompress(gif, static_cast<size_t>(rows) * static_cast<size_t>(frame.width), scratch));
  out->Resize(region.width, region.height);
  for (int y = 0; y < region.height; ++y) {
    const int frame_y = region.top + y - frame.top;
    const uint8_t* indices = nullptr;
    if (frame_y >= 0 && frame_y < frame.height) {
      const int row = gif.interlaced ? StoredRow(frame_y, frame.height) : frame_y;
      indices = scratch->data() + static_cast<size_t>(row) * static_cast<size_t>(frame.width);
    }
    uint8_t* to = out->row(y);
    for (int x = region.left - frame.left; x < region.left + region.width - frame.left; ++x, to += 3) {
      const int index = indices != nullptr && x >= 0 && x < frame.width ? indices[x] : gif.transparent;
      std::memcpy(to, gif.palette[index], 3);
    }
  }
  return absl::OkStatus();
}

}  // namespace headrace
