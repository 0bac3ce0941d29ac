#include "core/decode/image_decoder.h"

#include "absl/strings/str_cat.h"
#include "core/decode/avif/avif_decoder.h"
#include "core/decode/bmp/bmp_decoder.h"
#include "core/decode/gif/gif_decoder.h"
#include "core/decode/jpeg/jpeg_decoder.h"
#include "core/decode/png/png_decoder.h"
#include "core/decode/tiff/tiff_decoder.h"
#include "core/decode/webp/webp_decoder.h"

namespace headrace {

class ImageDecoder::Impl {
 public:
  uint64_t max_scaled_pixels;
  JpegDecoder jpeg;
  PngDecoder png;
  std::vector<uint8_t> scratch;  // of the other formats
};

ImageDecoder::ImageDecoder(uint64_t max_scaled_pixels) : impl_(std::make_unique<Impl>()) {
  impl_->max_scaled_pixels = max_scaled_pixels;
}
ImageDecoder::~ImageDecoder() = default;

absl::Status ImageDecoder::Decode(absl::Span<const uint8_t> bytes, const ImageInfo& info,
                                  const Rect& region, RgbImage* out, std::string* warning) {
  if (region.top < 0 || region.left < 0 || region.height <= 0 || region.width <= 0 ||
      uint32_t(region.top) + uint32_t(region.height) > info.height ||
      uint32_t(region.left) + uint32_t(region.width) > info.width) {
    return absl::InvalidArgumentError(
        absl::StrCat("region ", region.top, ", ", region.left, ", ", region.height, ", ",
                     region.width, " is not inside ", info.width, " x ", info.height, " pixels"));
  }
  if (warning != nullptr) warning->clear();
  switch (info.format) {
    case ImageFormat::kJpeg:
      return impl_->jpeg.Decode(bytes, info, region, out, warning);
    case ImageFormat::kPng:
      return impl_->png.Decode(bytes, info, region, out, warning);
    case ImageFormat::kWebp:
      return DecodeWebp(bytes, info, region, &impl_->scratch, out);
    case ImageFormat::kGif:
      return DecodeGif(bytes, info, region, &impl_->scratch, out);
    case ImageFormat::kBmp:
      return DecodeBmp(bytes, info, region, &impl_->scratch, out);
    case ImageFormat::kTiff:
      return DecodeTiff(bytes, info, region, &impl_->scratch, out, warning);
    case ImageFormat::kAvif:
      return DecodeAvif(bytes, info, region, impl_->max_scaled_pixels, &impl_->scratch, out);
    default:
      return absl::InvalidArgumentError("the index knows no format of this image");
  }
}

}  // namespace headrace
