#include "core/decode/webp/webp_decoder.h"

#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "core/decode/exif.h"

namespace headrace {
namespace {

constexpr size_t kFirstChunkEnd = 16;

absl::Status Invalid(const std::string& reason) { return absl::InvalidArgumentError(absl::StrCat("WebP: ", reason)); }

using Demuxer = std::unique_ptr<WebPDemuxer, decltype(&WebPDemuxDelete)>;

Demuxer Demux(absl::Span<const uint8_t> bytes) {
  const WebPData data = {bytes.data(), bytes.size()};
  return {WebPDemux(&data), &WebPDemuxDelete};
}

// The body of the first chunk of that name, which lies in the file; empty when there is none.
absl::Span<const uint8_t> Chunk(const WebPDemuxer* demuxer, const char* name) {
  WebPChunkIterator iterator;
  if (WebPDemuxGetChunk(demuxer, name, 1, &iterator) == 0) return {};
  const absl::Span<const uint8_t> body(iterator.chunk.bytes, iterator.chunk.size);
  WebPDemuxReleaseChunkIterator(&iterator);
  return body;
}

// Decodes to RGBA as Pillow does: a broken alpha plane is a broken file.
absl::Status DecodeFrame(const WebPIterator& frame, std::vector<uint8_t>* pixels) {
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) return Invalid("another libwebp than Headrace was built with");
  const size_t stride = size_t{4} * static_cast<size_t>(frame.width);
  const size_t size = stride * static_cast<size_t>(frame.height);
  if (pixels->size() < size) pixels->resize(size);
  config.output.colorspace = MODE_RGBA;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {pixels->data(), static_cast<int>(stride), size};
  switch (WebPDecode(frame.fragment.bytes, frame.fragment.size, &config)) {
    case VP8_STATUS_OK:
      return absl::OkStatus();
    case VP8_STATUS_OUT_OF_MEMORY:
      return Invalid("out of memory");
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
      return Invalid("the picture is cut off");
    default:
      return Invalid("the picture's data are broken");
  }
}

}  // namespace

bool IsWebp(absl::Span<const uint8_t> bytes) {
  if (bytes.size() < kFirstChunkEnd) return false;
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()), kFirstChunkEnd);
  const std::string_view chunk = head.substr(12);
  return head.substr(0, 4) == "RIFF" && head.substr(8, 4) == "WEBP" && (chunk == "VP8 " || chunk == "VP8L" || chunk == "VP8X");
}

absl::StatusOr<ImageInfo> ReadWebpHeader(absl::Span<const uint8_t> bytes) {
  const Demuxer demuxer = Demux(bytes);
  if (demuxer == nullptr) return Invalid("the container is broken or cut off");
  ImageInfo info;
  info.format = ImageFormat::kWebp;
  info.width = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH);
  info.height = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT);
  info.components = (WebPDemuxGetI(demuxer.get(), WEBP_FF_FORMAT_FLAGS) & ALPHA_FLAG) != 0 ? 4 : 3;
  int orientation = ExifOrientation(Chunk(demuxer.get(), "EXIF"));
  if (orientation == 0) orientation = XmpOrientation(Chunk(demuxer.get(), "XMP "));
  info.orientation = static_cast<uint8_t>(orientation);
  return info;
}

absl::Status DecodeWebp(absl::Span<const uint8_t> bytes, const ImageInfo& info, const Rect& region, std::vector<uint8_t>* scratch,
                        RgbImage* out) {
  const Demuxer demuxer = Demux(bytes);
  if (demuxer == nullptr) return Invalid("the container is broken or cut off");
  if (WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH) != info.width ||
      WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT) != info.height) {
    return Invalid("the picture has another size than the index says");
  }
  WebPIterator frame;
  if (WebPDemuxGetFrame(demuxer.get(), 1, &frame) == 0) return Invalid("no frame");
  const std::unique_ptr<WebPIterator, decltype(&WebPDemuxReleaseIterator)> release(&frame, &WebPDemuxReleaseIterator);
  HEADRACE_RETURN_IF_ERROR(DecodeFrame(frame, scratch));
  out->Resize(region.width, region.height);
  const int left = std::max(region.left, frame.x_offset);
  const int right = std::min(region.left + region.width, frame.x_offset + frame.width);
  for (int y = 0; y < region.height; ++y) {
    const int frame_y = region.top + y - frame.y_offset;
    uint8_t* to = out->row(y);
    if (frame_y < 0 || frame_y >= frame.height || left >= right) {
      std::memset(to, 0, out->stride());
      continue;
    }
    std::memset(to, 0, size_t{3} * static_cast<size_t>(left - region.left));
    to += 3 * (left - region.left);
    const uint8_t* from =
        scratch->data() + size_t{4} * (static_cast<size_t>(frame_y) * static_cast<size_t>(frame.width) +
                                       static_cast<size_t>(left - frame.x_offset));
    for (int x = left; x < right; ++x, from += 4, to += 3) std::memcpy(to, from, 3);
    std::memset(to, 0, size_t{3} * static_cast<size_t>(region.left + region.width - right));
  }
  return absl::OkStatus();
}

}  // namespace headrace
