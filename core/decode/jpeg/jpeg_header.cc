#include "core/decode/jpeg/jpeg_header.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/decode/exif.h"
#include "core/decode/jpeg/jpeg_coefficients.h"

namespace headrace {
namespace {

constexpr uint32_t kMaxSidePx = 65500;  // JPEG_MAX_DIMENSION of libjpeg

enum Marker : uint8_t {
  kTem = 0x01,
  kSof0 = 0xC0,
  kSof1 = 0xC1,
  kSof2 = 0xC2,
  kDht = 0xC4,
  kSof9 = 0xC9,
  kSof10 = 0xCA,
  kDac = 0xCC,
  kSof15 = 0xCF,
  kRst0 = 0xD0,
  kRst7 = 0xD7,
  kSoi = 0xD8,
  kEoi = 0xD9,
  kSos = 0xDA,
  kDqt = 0xDB,
  kDnl = 0xDC,
  kDri = 0xDD,
  kApp0 = 0xE0,
  kApp1 = 0xE1,
  kApp15 = 0xEF,
  kCom = 0xFE,
};

absl::Status Invalid(const std::string& reason) {
  return absl::InvalidArgumentError(absl::StrCat("JPEG: ", reason));
}

bool StartsWith(absl::Span<const uint8_t> bytes, std::string_view prefix) {
  return bytes.size() >= prefix.size() &&
         std::memcmp(bytes.data(), prefix.data(), prefix.size()) == 0;
}

// Process names for files that are refused, by SOF number.
std::string ProcessName(uint8_t marker) {
  switch (marker) {
    case 0xC3:
      return "lossless";
    case 0xC5:
    case 0xC6:
    case 0xC7:
      return "hierarchical";
    case 0xCB:
      return "lossless arithmetic";
    case 0xCD:
    case 0xCE:
    case 0xCF:
      return "hierarchical arithmetic";
    default:
      return "unknown";
  }
}

class HeaderWalk {
 public:
  explicit HeaderWalk(absl::Span<const uint8_t> bytes) : bytes_(bytes) {}

  absl::StatusOr<ImageInfo> Run() {
    at_ = 2;  // behind SOI
    while (true) {
      uint8_t marker;
      if (!NextMarker(&marker)) return Invalid("the file ends inside its header");
      if (marker == kSos) break;
      HEADRACE_RETURN_IF_ERROR(Handle(marker));
    }
    if (!has_frame_) return Invalid("a scan before the frame header");
    info_.orientation = static_cast<uint8_t>(Orientation());
    return info_;
  }

 private:
  // Skips garbage and fill bytes, as libjpeg's next_marker does.
  bool NextMarker(uint8_t* marker) {
    while (at_ < bytes_.size()) {
      const auto* found =
          static_cast<const uint8_t*>(std::memchr(bytes_.data() + at_, 0xFF, bytes_.size() - at_));
      if (found == nullptr) return false;
      at_ = static_cast<size_t>(found - bytes_.data());
      while (at_ < bytes_.size() && bytes_[at_] == 0xFF) ++at_;
      if (at_ == bytes_.size()) return false;
      *marker = bytes_[at_++];
      if (*marker != 0) return true;
    }
    return false;
  }

  // The segment's body. A length below 2 is an empty segment, as libjpeg and Pillow take it.
  absl::StatusOr<absl::Span<const uint8_t>> Segment() {
    if (bytes_.size() - at_ < 2) return Invalid("the file ends inside its header");
    const size_t length = size_t{bytes_[at_]} << 8 | bytes_[at_ + 1];
    at_ += 2;
    const size_t body = length < 2 ? 0 : length - 2;
    if (bytes_.size() - at_ < body) return Invalid("the file ends inside its header");
    const absl::Span<const uint8_t> segment = bytes_.subspan(at_, body);
    at_ += body;
    return segment;
  }

  absl::Status Handle(uint8_t marker) {
    if (marker == kSoi) return Invalid("two SOI markers");
    if (marker == kEoi) return Invalid("no image in the file");
    if (marker == kTem || (marker >= kRst0 && marker <= kRst7)) return absl::OkStatus();
    const bool sof = marker >= kSof0 && marker <= kSof15 && marker != kDht && marker != kDac;
    const bool other = marker == kDht || marker == kDac || marker == kDqt || marker == kDnl ||
                       marker == kDri || (marker >= kApp0 && marker <= kApp15) || marker == kCom;
    if (!sof && !other) return Invalid(absl::StrCat("unsupported marker 0x", absl::Hex(marker)));
    HEADRACE_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> segment, Segment());
    if (sof) return Frame(marker, segment);
    if (marker == kApp1) App1(segment);
    if (marker == kApp15 && IsTranscodingMark(segment)) info_.transcoded = true;
    return absl::OkStatus();
  }

  absl::Status Frame(uint8_t marker, absl::Span<const uint8_t> segment) {
    if (marker != kSof0 && marker != kSof1 && marker != kSof2 && marker != kSof9 &&
        marker != kSof10) {
      return Invalid(
          absl::StrCat(ProcessName(marker), " process (SOF", marker - kSof0, ") is not supported"));
    }
    if (has_frame_) return Invalid("two frame headers");
    has_frame_ = true;
    if (segment.size() < 6) return Invalid("the frame header is too short");
    const int bits = segment[0];
    info_.format = ImageFormat::kJpeg;
    info_.height = uint32_t{segment[1]} << 8 | segment[2];
    info_.width = uint32_t{segment[3]} << 8 | segment[4];
    info_.components = segment[5];
    info_.progressive = marker == kSof2 || marker == kSof10;
    if (bits != 8) return Invalid(absl::StrCat(bits, " bits per sample are not supported"));
    if (info_.width == 0 || info_.height == 0) return Invalid("width or height is 0");
    if (std::max(info_.width, info_.height) > kMaxSidePx) {
      return Invalid(absl::StrCat(info_.width, " x ", info_.height,
                                  " pixels: a side is longer than ", kMaxSidePx));
    }
    if (info_.components != 1 && info_.components != 3 && info_.components != 4) {
      return Invalid(absl::StrCat(info_.components, " components are not supported"));
    }
    if (segment.size() != 6 + size_t{3} * info_.components) {
      return Invalid("the frame header has a wrong length");
    }
    return Sampling(segment.subspan(6));
  }

  absl::Status Sampling(absl::Span<const uint8_t> components) {
    int max_h = 1, max_v = 1;
    for (int i = 0; i < info_.components; ++i) {
      info_.sampling[i] = components[static_cast<size_t>(3 * i + 1)];
      const int h = info_.sampling[i] >> 4, v = info_.sampling[i] & 15;
      if (h < 1 || h > 4 || v < 1 || v > 4) return Invalid("bogus sampling factors");
      max_h = std::max(max_h, h);
      max_v = std::max(max_v, v);
    }
    for (int i = 0; i < info_.components; ++i) {
      if (max_h % (info_.sampling[i] >> 4) != 0 || max_v % (info_.sampling[i] & 15) != 0) {
        return Invalid("fractional sampling is not supported");
      }
    }
    return absl::OkStatus();
  }

  void App1(absl::Span<const uint8_t> segment) {
    constexpr std::string_view kExif("Exif\0\0", 6);
    constexpr std::string_view kXmp("http://ns.adobe.com/xap/1.0/\0", 29);
    if (StartsWith(segment, kExif)) {
      if (exif_.empty()) {
        exif_ = segment;
        return;
      }
      // Pillow appends what further segments hold to the first.
      if (joined_exif_.empty()) joined_exif_.assign(exif_.begin(), exif_.end());
      joined_exif_.insert(joined_exif_.end(), segment.begin() + kExif.size(), segment.end());
    } else if (StartsWith(segment, kXmp)) {
      xmp_ = segment.subspan(kXmp.size());
    }
  }

  int Orientation() const {
    const int exif =
        ExifOrientation(joined_exif_.empty() ? exif_ : absl::MakeConstSpan(joined_exif_));
    return exif != 0 ? exif : XmpOrientation(xmp_);
  }

  const absl::Span<const uint8_t> bytes_;
  size_t at_ = 0;
  bool has_frame_ = false;
  ImageInfo info_;
  absl::Span<const uint8_t> exif_, xmp_;
  std::vector<uint8_t> joined_exif_;
};

}  // namespace

absl::StatusOr<ImageInfo> ReadJpegHeader(absl::Span<const uint8_t> bytes) {
  return HeaderWalk(bytes).Run();
}

}  // namespace headrace
