#include "packer/entry_maker.h"

namespace headrace {

void EntryMaker::Make(absl::Span<const uint8_t> file, const ImageInfo& image, std::string* tables,
                      std::string* entries) {
  tables->clear();
  entries->clear();
  if (interval_ == 0 || image.format != ImageFormat::kJpeg) return;
  const absl::StatusOr<JpegFrame> frame = ParseJpegFrame(file);
  // The probe and the parser forgive different flaws; where they see different images libjpeg decides.
  if (!frame.ok() || frame->width != image.width || frame->height != image.height ||
      frame->num_components != image.components) {
    return;
  }
  const absl::StatusOr<EntryPoints> points = builder_.Build(file, *frame, interval_);
  if (!points.ok()) return;
  *tables = EncodeTables(*frame);
  *entries = EncodeEntries(*frame, *points, 0);
}

}  // namespace headrace
