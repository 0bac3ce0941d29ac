#include "packer/entry_maker.h"

#include "absl/strings/str_cat.h"
#include "core/decode/probe.h"
#include "packer/entry_check.h"

namespace headrace {

std::unique_lock<std::mutex> EntryMaker::LockIfLarge(const ImageInfo& image) {
  constexpr uint64_t kLargePixels = uint64_t{4} << 20;
  const bool large = uint64_t{image.width} * image.height > kLargePixels;
  return large ? std::unique_lock(*large_) : std::unique_lock<std::mutex>();
}

std::string EntryMaker::Transcode(absl::Span<const uint8_t> file, ImageInfo* image, std::vector<uint8_t>* out) {
  // Only what the parser takes for a legal file of another kind than baseline in one scan.
  if (image->format != ImageFormat::kJpeg || !absl::IsUnimplemented(ParseJpegFrame(file).status())) return "";
  const auto lock = LockIfLarge(*image);
  const std::string process = transcoder_.Transcode(file, out);
  if (process.empty()) return "";
  const absl::StatusOr<ImageInfo> made = ProbeImage(*out);
  if (!made.ok() || made->orientation != image->orientation || made->width != image->width ||
      made->height != image->height) {
    return "";
  }
  if (options_.check) {
    JpegCoefficients before, after;
    if (!transcoder_.Read(file, &before).ok() || !transcoder_.Read(*out, &after).ok() || !HaveSameBlocks(before, after)) {
      return "";
    }
  }
  *image = *made;
  return process;
}

absl::Status EntryMaker::Make(absl::Span<const uint8_t> file, const ImageInfo& image, std::string* tables,
                              std::string* entries) {
  tables->clear();
  entries->clear();
  if (options_.interval == 0 || image.format != ImageFormat::kJpeg) return absl::OkStatus();
  const absl::StatusOr<JpegFrame> frame = ParseJpegFrame(file);
  // The probe and the parser forgive different flaws; where they see different images libjpeg decides.
  if (!frame.ok() || frame->width != image.width || frame->height != image.height ||
      frame->num_components != image.components) {
    return absl::OkStatus();
  }
  const absl::StatusOr<EntryPoints> points = builder_.Build(file, *frame, options_.interval);
  if (!points.ok()) return absl::OkStatus();
  *tables = EncodeTables(*frame);
  *entries = EncodeEntries(*frame, *points, 0);
  if (!options_.check) return absl::OkStatus();
  const auto lock = LockIfLarge(image);
  JpegCoefficients expected;
  absl::Status status = transcoder_.Read(file, &expected);
  if (status.ok()) status = CheckEntries(file, *tables, *entries, expected);
  if (status.ok()) return status;
  tables->clear();
  entries->clear();
  return absl::DataLossError(absl::StrCat("packed without entry points, which contradict libjpeg: ", status.message()));
}

}  // namespace headrace
