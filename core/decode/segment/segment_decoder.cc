#include "core/decode/segment/segment_decoder.h"

#include <algorithm>
#include <bit>
#include <climits>
#include <vector>

#include "core/decode/cmyk.h"
#include "core/decode/entry/end_marker.h"
#include "core/decode/entry/entry_builder.h"
#include "core/decode/segment/kernels.h"
#include "core/decode/segment/region_plan.h"
#include "core/decode/segment/segment_runs.h"

namespace headrace {
namespace {

// Segments that may be under way or done before the row that is asked for is complete. With fewer, a stream with much to
// decode stops the others; more would leave the caches.
constexpr int kSegmentsAhead = 8;

// Whether the image ends where its entries say, if decoding the region touches the end.
absl::Status CheckEnd(const EntryView& entries, absl::Span<const uint8_t> bytes, uint64_t begin, const Rect& region) {
  if (!TouchesEnd(entries.frame(), region)) return absl::OkStatus();
  const uint64_t end = uint64_t{entries.frame().scan_offset} + entries.scan_bytes();
  if (end < begin || end - begin > bytes.size() ||
      !IsEnd(bytes.data() + (end - begin), std::min<uint64_t>(bytes.size() - (end - begin), kMaxEndBytes))) {
    return absl::DataLossError("the image does not end where its entry data says");
  }
  return absl::OkStatus();
}

}  // namespace

class SegmentDecoder::Impl {
 public:
  Impl(int streams, const SegmentKernels& kernels) : kernels_(kernels), runs_(streams, kernels) {}

  absl::Status Begin(const EntryView& entries, const JpegFrame& frame, absl::Span<const uint8_t> bytes, uint64_t begin,
                     const Rect& region) {
    HEADRACE_ASSIGN_OR_RETURN(plan_, PlanRegion(frame, region));
    HEADRACE_RETURN_IF_ERROR(CheckEnd(entries, bytes, begin, region));
    frame_ = &frame;
    region_ = region;
    failed_ = false;
    if (begin < frame.scan_offset) {
      const uint64_t header = std::min<uint64_t>(frame.scan_offset - begin, bytes.size());
      bytes.remove_prefix(header);
      begin += header;
    }
    const uint64_t first_byte = begin - std::min<uint64_t>(begin, frame.scan_offset);
    PreparePlanes(entries.interval());
    runs_.Begin({.entries = &entries,
                 .frame = &frame,
                 .scan = bytes,
                 .first_byte = first_byte,
                 .plan = &plan_,
                 .planes = planes_.data(),
                 .ring_rows = ring_rows_});
    return absl::OkStatus();
  }

  PlanarRow Row(int row);
  bool failed() const { return failed_; }
  const SegmentKernels& kernels() const { return kernels_; }
  const Rect& region() const { return region_; }

 private:
  void PreparePlanes(int interval);
  void CopyEdges(int mcu_row);
  const uint8_t* ComponentRow(int c, int y, uint8_t* buffer) const;
  void DecodeUntil(int y);

  const SegmentKernels& kernels_;
  SegmentRuns runs_;

  // The region at hand.
  const JpegFrame* frame_ = nullptr;
  Rect region_;
  RegionPlan plan_;
  std::array<PlaneRing, 4> planes_;
  int ring_rows_ = 0;
  int ready_ = 0;  // rows of the image before it can be made
  int edged_ = 0;  // MCU rows before it have their edges
  bool failed_ = false;

  std::vector<uint8_t> plane_memory_, row_memory_;
  size_t row_bytes_ = 0;
};

void SegmentDecoder::Impl::PreparePlanes(int interval) {
  // A row of pixels looks at three MCU rows at most.
  const int segments = plan_.last_mcu / interval - plan_.first_mcu / interval + 1;
  ring_rows_ = static_cast<int>(std::bit_ceil(static_cast<unsigned>(3 + (kSegmentsAhead + segments - 1) / segments)));
  ready_ = region_.top;
  edged_ = plan_.first_row;
  size_t total = kRowMargin, stride = 0;
  for (int c = 0; c < frame_->num_components; ++c) {
    const JpegComponent& component = frame_->components[c];
    PlaneRing& plane = planes_[c];
    plane.columns = (plan_.last_mcu - plan_.first_mcu + 1) * component.h * 8;
    plane.rows = ring_rows_ * component.v * 8;
    plane.first_column = plan_.first_mcu * component.h * 8;
    stride = std::max(stride, (static_cast<size_t>(plane.columns) + 63) / 64 * 64 + kRowMargin);
  }
  if (stride % 4096 == 0) stride += 64;  // rows at equal cache sets would evict each other
  std::array<size_t, 4> offsets = {};
  for (int c = 0; c < frame_->num_components; ++c) {
    planes_[c].stride = stride;
    offsets[c] = total;
    total += stride * static_cast<size_t>(planes_[c].rows) + kRowMargin;
  }
  if (plane_memory_.size() < total) plane_memory_.resize(total);
  for (int c = 0; c < frame_->num_components; ++c) planes_[c].origin = plane_memory_.data() + offsets[c];
  row_bytes_ = (static_cast<size_t>(region_.width) + 63) / 64 * 64 + 2 * kRowMargin;
  if (row_memory_.size() < 8 * row_bytes_) row_memory_.resize(8 * row_bytes_);
}

// Fancy upsampling at an image's edge takes the edge sample twice.
void SegmentDecoder::Impl::CopyEdges(int mcu_row) {
  for (int c = 0; c < frame_->num_components; ++c) {
    const ComponentPlan& part = plan_.components[c];
    if (part.upsampling != Upsampling::kFancyH2V1 && part.upsampling != Upsampling::kFancyH2V2) continue;
    const PlaneRing& plane = planes_[c];
    const int rows = frame_->components[c].v * 8;
    for (int y = mcu_row * rows; y < (mcu_row + 1) * rows; ++y) {
      uint8_t* row = plane.row(y);
      if (plane.first_column == 0) row[-1] = row[0];
      if (part.width <= plane.first_column + plane.columns) row[part.width] = row[part.width - 1];
    }
  }
}

// Row y of the region's columns at the image's resolution: in `buffer`, or where it lies already.
const uint8_t* SegmentDecoder::Impl::ComponentRow(int c, int y, uint8_t* buffer) const {
  const ComponentPlan& part = plan_.components[c];
  const PlaneRing& plane = planes_[c];
  if (part.upsampling == Upsampling::kNone) return plane.row(y) + region_.left;
  const int first = region_.left / part.h_expand;
  const int n = (region_.left + region_.width - 1) / part.h_expand - first + 1;
  const int near_row = y / part.v_expand;
  const uint8_t* near = plane.row(near_row);
  // The second row of samples, where there is one.
  const uint8_t* far = plane.row(y % 2 == 0 ? std::max(near_row - 1, 0) : std::min(near_row + 1, part.height - 1));
  switch (part.upsampling) {
    case Upsampling::kFancyH2V1:
      kernels_.upsample_h2v1(near + first, n, buffer);
      return buffer + region_.left % 2;
    case Upsampling::kFancyH2V2:
      kernels_.upsample_h2v2(near + first, far + first, n, buffer);
      return buffer + region_.left % 2;
    case Upsampling::kFancyH1V2:
      kernels_.upsample_h1v2(near + region_.left, far + region_.left, region_.width, y % 2 == 0 ? 1 : 2, buffer);
      return buffer;
    default:
      for (int x = 0; x < region_.width; ++x) buffer[x] = near[(region_.left + x) / part.h_expand];
      return buffer;
  }
}

// Decodes the MCU rows that row y of the image needs.
void SegmentDecoder::Impl::DecodeUntil(int y) {
  const int mcu_rows = 8 * frame_->max_v();
  // Vertical upsampling looks one row of samples, two rows of the image, up or down.
  const int first_row = std::max((y - 2) / mcu_rows, plan_.first_row), last_row = std::min((y + 2) / mcu_rows, plan_.last_row);
  failed_ = failed_ || !runs_.Complete(last_row, first_row);
  for (; edged_ <= last_row; ++edged_) CopyEdges(edged_);
  ready_ = last_row == plan_.last_row ? INT_MAX : (last_row + 1) * mcu_rows - 2;
}

PlanarRow SegmentDecoder::Impl::Row(int row) {
  const int y = region_.top + row;
  if (y >= ready_) DecodeUntil(y);
  const auto buffer = [&](int i) { return row_memory_.data() + row_bytes_ * static_cast<size_t>(i); };
  const uint8_t* rows[4];
  for (int c = 0; c < frame_->num_components; ++c) rows[c] = ComponentRow(c, y, buffer(c));
  switch (frame_->color) {
    case JpegColor::kGrey:
      return {rows[0], 0};
    case JpegColor::kRgb:
      for (int c = 0; c < 3; ++c) std::copy_n(rows[c], region_.width, buffer(4 + c));
      break;
    case JpegColor::kYCbCr:
      kernels_.ycc_to_rgb(rows[0], rows[1], rows[2], region_.width, buffer(4), buffer(5), buffer(6));
      break;
    case JpegColor::kYcck:
      kernels_.ycc_to_rgb(rows[0], rows[1], rows[2], region_.width, buffer(4), buffer(5), buffer(6));
      for (int c = 0; c < 3; ++c) rows[c] = buffer(4 + c);
      [[fallthrough]];
    case JpegColor::kCmyk:
      for (int x = 0; x < region_.width; ++x) {
        uint8_t cmyk[4] = {rows[0][x], rows[1][x], rows[2][x], rows[3][x]}, rgb[3];
        // libjpeg gives 255 − R, 255 − G, 255 − B.
        for (int i = 0; frame_->color == JpegColor::kYcck && i < 3; ++i) cmyk[i] = static_cast<uint8_t>(255 - cmyk[i]);
        CmykToRgb(cmyk, 1, rgb);
        for (int c = 0; c < 3; ++c) buffer(4 + c)[x] = rgb[c];
      }
      break;
  }
  return {buffer(4), row_bytes_};
}

SegmentDecoder::SegmentDecoder(int streams, const SegmentKernels* kernels)
    : impl_(std::make_unique<Impl>(std::clamp(streams, 1, kMaxStreams), kernels ? *kernels : ActiveSegmentKernels())) {}
SegmentDecoder::~SegmentDecoder() = default;

absl::StatusOr<ByteRange> SegmentDecoder::NeededBytes(const EntryView& entries, const Rect& region) {
  HEADRACE_ASSIGN_OR_RETURN(const RegionPlan plan, PlanRegion(entries.frame(), region));
  return NeededBytes(entries, plan, region);
}

absl::StatusOr<ByteRange> SegmentDecoder::NeededBytes(const EntryView& entries, const RegionPlan& plan, const Rect& region) {
  EntryPoint first;
  uint32_t end;
  if (!entries.Point(plan.first_row, plan.first_mcu / entries.interval(), &first) ||
      !entries.SegmentEnd(plan.last_row, plan.last_mcu / entries.interval(), &end) || end < first.byte) {
    return absl::DataLossError("entry data: the entries are out of order");
  }
  if (TouchesEnd(entries.frame(), region)) end = entries.scan_bytes() + kMaxEndBytes;
  return ByteRange{uint64_t{entries.frame().scan_offset} + first.byte, uint64_t{entries.frame().scan_offset} + end};
}

absl::Status SegmentDecoder::Begin(const EntryView& entries, const JpegFrame& frame, absl::Span<const uint8_t> bytes,
                                   uint64_t begin, const Rect& region) {
  return impl_->Begin(entries, frame, bytes, begin, region);
}

PlanarRow SegmentDecoder::Row(int row) { return impl_->Row(row); }

void SegmentDecoder::ReadRows(RgbImage* out) {
  const Rect& region = impl_->region();
  out->Resize(region.width, region.height);
  for (int y = 0; y < region.height && !impl_->failed(); ++y) {
    const PlanarRow row = Row(y);
    impl_->kernels().interleave(row.planes, row.planes + row.stride, row.planes + 2 * row.stride, region.width, out->row(y));
  }
}

absl::Status SegmentDecoder::Finish() {
  return impl_->failed() ? absl::DataLossError("the entropy-coded data contradicts its entry points") : absl::OkStatus();
}

absl::Status SegmentDecoder::Decode(const EntryView& entries, const JpegFrame& frame, absl::Span<const uint8_t> bytes,
                                    uint64_t begin, const Rect& region, RgbImage* out) {
  HEADRACE_RETURN_IF_ERROR(Begin(entries, frame, bytes, begin, region));
  ReadRows(out);
  return Finish();
}

const char* SegmentDecoderTarget() { return ActiveSegmentKernels().target; }

}  // namespace headrace
