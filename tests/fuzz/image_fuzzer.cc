// Image files: what the packer finds out about them, their transcoding and entry points, and their pixels.
#include <mutex>
#include <vector>

#include "core/decode/entry/entry_builder.h"
#include "core/decode/exif.h"
#include "core/decode/image_decoder.h"
#include "core/decode/probe.h"
#include "core/decode/segment/segment_decoder.h"
#include "packer/entry_check.h"
#include "packer/entry_maker.h"
#include "tests/fuzz/input.h"

namespace headrace {
namespace {

using fuzz::Check;

// A picture takes time for each pixel that it claims.
constexpr uint64_t kMaxDecodedPixels = 1 << 15;

// A file that has entry points has libjpeg's coefficients and pixels when it is decoded from them.
void CheckEntryPoints(absl::Span<const uint8_t> file, const ImageInfo& info, int interval, ImageDecoder* decoder) {
  static std::mutex large;
  static JpegTranscoder transcoder;
  std::string tables, encoded;
  Check(EntryMaker({.interval = interval}, &large).Make(file, info, &tables, &encoded).ok());
  if (encoded.empty()) return;
  JpegCoefficients coefficients;
  Check(transcoder.Read(file, &coefficients).ok());
  Check(CheckEntries(file, tables, encoded, coefficients).ok());
  const auto bytes = [](const std::string& text) {
    return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  };
  const auto view = EntryView::Parse(bytes(encoded), file.size());
  Check(view.ok());
  JpegFrame frame = view->frame();
  Check(ApplyTables(bytes(tables), &frame).ok());
  const Rect whole = {0, 0, frame.height, frame.width};
  if (!SegmentDecoder::NeededBytes(*view, whole).ok()) return;  // libjpeg refuses such sampling factors too
  static SegmentDecoder segments;
  RgbImage from_entries, expected;
  Check(segments.Decode(*view, frame, file, 0, whole, &from_entries).ok());
  Check(decoder->Decode(file, info, whole, &expected, nullptr).ok());
  Check(std::memcmp(from_entries.pixels.data(), expected.pixels.data(), expected.stride() * frame.height) == 0);
}

}  // namespace
}  // namespace headrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace;  // NOLINT
  fuzz::Input input(data, size);
  const int interval = 1 + static_cast<int>(input.Below(kMaxEntryInterval));
  const uint16_t top = input.Take<uint16_t>(), left = input.Take<uint16_t>();
  const absl::Span<const uint8_t> rest = input.Bytes(size);
  const std::vector<uint8_t> file(rest.begin(), rest.end());
  (void)ExifOrientation(file);
  (void)XmpOrientation(file);
  (void)ParseJpegFrame(file);
  absl::StatusOr<ImageInfo> info = ProbeImage(file);
  if (!info.ok() || uint64_t{info->width} * info->height > kMaxDecodedPixels) return 0;

  static ImageDecoder decoder(kMaxDecodedPixels);
  const Rect whole = {0, 0, static_cast<int>(info->height), static_cast<int>(info->width)};
  Rect region = whole;
  region.top = top % whole.height;
  region.left = left % whole.width;
  region.height = (whole.height - region.top + 1) / 2;
  region.width = (whole.width - region.left + 1) / 2;
  RgbImage part, all, upright;
  std::string warning, ignored;
  const bool decoded = decoder.Decode(file, *info, whole, &all, &warning).ok();
  if (decoder.Decode(file, *info, region, &part, &ignored).ok() && decoded && warning.empty()) {
    for (int y = 0; y < region.height; ++y) {
      Check(std::memcmp(part.row(y), all.row(region.top + y) + 3 * region.left, part.stride()) == 0);
    }
  }
  if (decoded) ApplyOrientation(all, info->orientation, &upright);
  if (info->format != ImageFormat::kJpeg) return 0;
  CheckEntryPoints(file, *info, interval, &decoder);
  static std::mutex large;
  std::vector<uint8_t> transcoded;
  if (EntryMaker({.interval = interval}, &large).Transcode(file, &*info, &transcoded).empty()) return 0;
  // The same picture.
  RgbImage again;
  Check(decoder.Decode(transcoded, *info, whole, &again, nullptr).ok() && decoded);
  Check(std::memcmp(all.pixels.data(), again.pixels.data(), all.stride() * static_cast<size_t>(all.height)) == 0);
  CheckEntryPoints(transcoded, *info, interval, &decoder);
  return 0;
}
