// In the place of avif_decoder.cc where dav1d was not found.
#include "core/decode/avif/avif_decoder.h"

namespace headrace {
namespace {

absl::Status Absent() { return absl::InvalidArgumentError("AVIF: this build has no AVIF reader"); }

}  // namespace

absl::StatusOr<ImageInfo> ReadAvifHeader(absl::Span<const uint8_t>) { return Absent(); }

absl::Status DecodeAvif(absl::Span<const uint8_t>, const ImageInfo&, const Rect&, uint64_t, std::vector<uint8_t>*, RgbImage*) {
  return Absent();
}

}  // namespace headrace
