#include "core/decode/entry/jpeg_frame.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace headrace {

const std::array<uint8_t, 80> kNaturalOrder = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33,
    40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36,
    29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54,
    47, 55, 62, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63};

bool IsUsableHuffmanSpec(const HuffmanSpec& spec, bool dc) {
  uint32_t code = 0;
  uint32_t total = 0;
  for (int bits = 1; bits <= 16; ++bits) {
    code += spec.counts[bits - 1];
    total += spec.counts[bits - 1];
    if (code > (1u << bits) - 1) return false;  // more codes than there are, or all ones used
    code <<= 1;
  }
  if (total == 0 || total != spec.num_symbols || total > 256) return false;
  return !dc || std::all_of(spec.symbols.begin(), spec.symbols.begin() + total, [](uint8_t s) { return s <= 15; });
}

int JpegShape::max_h() const {
  int result = 1;
  for (int c = 0; c < num_components; ++c) result = std::max<int>(result, components[c].h);
  return result;
}

int JpegShape::max_v() const {
  int result = 1;
  for (int c = 0; c < num_components; ++c) result = std::max<int>(result, components[c].v);
  return result;
}

int JpegShape::blocks_per_mcu() const {
  int result = 0;
  for (int c = 0; c < num_components; ++c) result += components[c].h * components[c].v;
  return result;
}

namespace {

absl::Status Broken(const std::string& what) { return absl::InvalidArgumentError(what); }
absl::Status Unsupported(const std::string& what) { return absl::UnimplementedError(what); }

// Walks the marker segments of a file.
class FrameParser {
 public:
  explicit FrameParser(absl::Span<const uint8_t> file) : file_(file) {}

  absl::StatusOr<JpegFrame> Parse() {
    if (file_.size() < 4 || file_[0] != 0xFF || file_[1] != 0xD8) return Broken("no SOI");
    position_ = 2;
    for (;;) {
      HEADRACE_ASSIGN_OR_RETURN(const uint8_t marker, NextMarker());
      if (marker == 0xD9) return Broken("no scan");
      if (marker == 0x01 || (marker >= 0xD0 && marker <= 0xD7)) continue;  // no body
      HEADRACE_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> body, Body());
      if (marker == 0xDA) {
        HEADRACE_RETURN_IF_ERROR(ReadScan(body));
        return frame_;
      }
      HEADRACE_RETURN_IF_ERROR(ReadSegment(marker, body));
    }
  }

 private:
  absl::StatusOr<uint8_t> NextMarker() {
    // libjpeg skips garbage between segments with a warning; such files are left to it.
    if (position_ + 2 > file_.size() || file_[position_] != 0xFF) return Broken("no marker where one must be");
    while (position_ < file_.size() && file_[position_] == 0xFF) ++position_;
    if (position_ >= file_.size()) return Broken("the header is cut off");
    return file_[position_++];
  }

  absl::StatusOr<absl::Span<const uint8_t>> Body() {
    if (position_ + 2 > file_.size()) return Broken("the header is cut off");
    const size_t length = file_[position_] << 8 | file_[position_ + 1];
    if (length < 2 || position_ + length > file_.size()) return Broken("a segment reaches behind the end");
    const auto body = file_.subspan(position_ + 2, length - 2);
    position_ += length;
    return body;
  }

  absl::Status ReadSegment(uint8_t marker, absl::Span<const uint8_t> body) {
    switch (marker) {
      case 0xC0:
      case 0xC1:
        return ReadFrameHeader(body);
      case 0xC4:
        return ReadHuffmanTables(body);
      case 0xDB:
        return ReadQuantTables(body);
      case 0xDD:
        if (body.size() != 2) return Broken("DRI of a wrong length");
        frame_.restart_interval = body[0] << 8 | body[1];
        return absl::OkStatus();
      case 0xDC:
        return Unsupported("DNL");
      case 0xE0:
        if (body.size() >= 14 && std::equal(body.begin(), body.begin() + 5, "JFIF")) {
          if (body[5] != 1) return Unsupported("another version of JFIF");  // libjpeg warns
          jfif_ = true;
        }
        return absl::OkStatus();
      case 0xEE:
        if (body.size() >= 12 && std::equal(body.begin(), body.begin() + 5, "Adobe")) {
          adobe_ = true;
          adobe_transform_ = body[11];
        }
        return absl::OkStatus();
      case 0xC8:
        return Broken("reserved marker");
      default:
        if (marker >= 0xC2 && marker <= 0xCF) {
          return Unsupported(marker == 0xC2 ? "progressive" : absl::StrCat("coding process SOF", marker - 0xC0));
        }
        if (marker < 0xE0 && marker != 0xFE) return Unsupported(absl::StrCat("marker ", marker));
        return absl::OkStatus();  // APPn, COM
    }
  }

  absl::Status ReadFrameHeader(absl::Span<const uint8_t> body) {
    if (have_frame_) return Broken("two frames");
    if (body.size() < 6) return Broken("SOF is cut off");
    if (body[0] != 8) return Unsupported(absl::StrCat(int{body[0]}, " bits a sample"));
    frame_.height = body[1] << 8 | body[2];
    frame_.width = body[3] << 8 | body[4];
    const int n = body[5];
    if (frame_.width == 0) return Broken("width 0");
    if (frame_.height == 0) return Unsupported("height by DNL");
    if (frame_.width > 65500 || frame_.height > 65500) return Broken("above 65500 pixels a side");
    if (n != 1 && n != 3 && n != 4) return Unsupported(absl::StrCat(n, " components"));
    if (body.size() != 6u + 3u * n) return Broken("SOF of a wrong length");
    frame_.num_components = n;
    for (int c = 0; c < n; ++c) {
      const uint8_t* entry = &body[6 + 3 * c];
      JpegComponent& component = frame_.components[c];
      ids_[c] = entry[0];
      for (int other = 0; other < c; ++other) {
        if (ids_[other] == ids_[c]) return Unsupported("two components of one id");
      }
      component.h = n == 1 ? 1 : entry[1] >> 4;
      component.v = n == 1 ? 1 : entry[1] & 15;
      component.quant = entry[2];
      if ((entry[1] >> 4) < 1 || (entry[1] >> 4) > 4 || (entry[1] & 15) < 1 || (entry[1] & 15) > 4) {
        return Broken("sampling factors outside 1 … 4");
      }
      if (component.quant > 3) return Broken("quantisation table above 3");
    }
    // T.81, B.2.3: such a frame cannot be one interleaved scan.
    if (frame_.blocks_per_mcu() > 10) return Unsupported("several scans");
    have_frame_ = true;
    return absl::OkStatus();
  }

  absl::Status ReadQuantTables(absl::Span<const uint8_t> body) {
    while (!body.empty()) {
      const int bytes = body[0] >> 4 ? 2 : 1;
      const int index = body[0] & 15;
      if (body[0] >> 4 > 1 || index > 3 || body.size() < 1u + 64u * bytes) return Broken("DQT");
      for (int i = 0; i < 64; ++i) {
        const uint8_t* entry = &body[1 + i * bytes];
        frame_.quant[index][kNaturalOrder[i]] = bytes == 2 ? entry[0] << 8 | entry[1] : entry[0];
      }
      frame_.quant_mask |= 1 << index;
      body.remove_prefix(1 + 64 * bytes);
    }
    return absl::OkStatus();
  }

  absl::Status ReadHuffmanTables(absl::Span<const uint8_t> body) {
    while (!body.empty()) {
      if (body.size() < 17) return Broken("DHT is cut off");
      const int index = body[0] & 15;
      if (body[0] >> 4 > 1 || index > 3) return Broken("Huffman table above 3");
      const bool ac = body[0] >> 4;
      HuffmanSpec spec;
      for (int i = 0; i < 16; ++i) {
        spec.counts[i] = body[1 + i];
        spec.num_symbols += body[1 + i];
      }
      if (spec.num_symbols > 256 || body.size() < 17u + spec.num_symbols) return Broken("DHT is cut off");
      std::copy_n(body.begin() + 17, spec.num_symbols, spec.symbols.begin());
      (ac ? frame_.ac : frame_.dc)[index] = spec;
      (ac ? frame_.ac_mask : frame_.dc_mask) |= 1 << index;
      body.remove_prefix(17 + spec.num_symbols);
    }
    return absl::OkStatus();
  }

  absl::Status ReadScan(absl::Span<const uint8_t> body) {
    const int n = frame_.num_components;
    if (!have_frame_) return Broken("SOS before SOF");
    if (body.empty() || body.size() != 4u + 2u * body[0]) return Broken("SOS of a wrong length");
    if (body[0] != n) return Unsupported("several scans");
    uint8_t quant_used = 0, dc_used = 0, ac_used = 0;
    for (int c = 0; c < n; ++c) {
      JpegComponent& component = frame_.components[c];
      if (body[1 + 2 * c] != ids_[c]) return Unsupported("components in another order");
      component.dc = body[2 + 2 * c] >> 4;
      component.ac = body[2 + 2 * c] & 15;
      if (component.dc > 3 || component.ac > 3) return Broken("Huffman table above 3");
      quant_used |= 1 << component.quant;
      dc_used |= 1 << component.dc;
      ac_used |= 1 << component.ac;
    }
    const uint8_t* spectral = &body[1 + 2 * n];
    if (spectral[0] != 0 || spectral[1] != 63 || spectral[2] != 0) return Unsupported("spectral selection");
    if ((quant_used & ~frame_.quant_mask) || (dc_used & ~frame_.dc_mask) || (ac_used & ~frame_.ac_mask)) {
      return Unsupported("a table is missing");
    }
    frame_.quant_mask = quant_used;
    frame_.dc_mask = dc_used;
    frame_.ac_mask = ac_used;
    for (int i = 0; i < 4; ++i) {
      if ((dc_used >> i & 1) && !IsUsableHuffmanSpec(frame_.dc[i], true)) return Unsupported("odd DC table");
      if ((ac_used >> i & 1) && !IsUsableHuffmanSpec(frame_.ac[i], false)) return Unsupported("odd AC table");
    }
    HEADRACE_ASSIGN_OR_RETURN(frame_.color, Color());
    frame_.scan_offset = static_cast<uint32_t>(position_);
    return absl::OkStatus();
  }

  absl::StatusOr<JpegColor> Color() const {
    const int n = frame_.num_components;
    if (n == 1) return JpegColor::kGrey;
    // libjpeg warns of other transforms, where it looks at them.
    const int known = n == 4 ? 2 : 1;
    if (adobe_ && (n == 4 || !jfif_) && adobe_transform_ != 0 && adobe_transform_ != known) {
      return Unsupported("an unknown colour transform");
    }
    if (n == 4) return adobe_ && adobe_transform_ == 2 ? JpegColor::kYcck : JpegColor::kCmyk;
    if (jfif_) return JpegColor::kYCbCr;
    if (adobe_) return adobe_transform_ == 0 ? JpegColor::kRgb : JpegColor::kYCbCr;
    return ids_[0] == 'R' && ids_[1] == 'G' && ids_[2] == 'B' ? JpegColor::kRgb : JpegColor::kYCbCr;
  }

  absl::Span<const uint8_t> file_;
  size_t position_ = 0;
  JpegFrame frame_;
  std::array<uint8_t, 4> ids_ = {};
  bool have_frame_ = false, jfif_ = false, adobe_ = false;
  uint8_t adobe_transform_ = 0;
};

}  // namespace

absl::StatusOr<JpegFrame> ParseJpegFrame(absl::Span<const uint8_t> file) {
  if (file.size() > UINT32_MAX) return Unsupported("4 GiB or more");
  return FrameParser(file).Parse();
}

}  // namespace headrace
