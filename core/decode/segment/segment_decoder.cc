#include "core/decode/segment/segment_decoder.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/decode/cmyk.h"
#include "core/decode/segment/entropy_context.h"
#include "core/decode/segment/kernels.h"
#include "core/decode/segment/region_plan.h"

namespace headrace {
namespace {

// The samples of one component that a region needs: whole segments, so that every block has its place.
struct Plane {
  uint8_t* origin = nullptr;  // first row and column
  size_t stride = 0;
  int first_column = 0, first_row = 0;  // of the origin, in the component's samples
  int columns = 0, rows = 0;
  uint8_t* row(int y) const { return origin + static_cast<ptrdiff_t>(stride) * (y - first_row); }
};

}  // namespace

class SegmentDecoder::Impl : public StreamSource {
 public:
  explicit Impl(int streams) : streams_(streams), context_(std::make_unique<EntropyContext>()) {}

  absl::Status Decode(const EntryView& entries, const JpegFrame& frame, absl::Span<const uint8_t> bytes, uint64_t begin,
                      const Rect& region, RgbImage* out) {
    HEADRACE_ASSIGN_OR_RETURN(plan_, PlanRegion(frame, region));
    entries_ = &entries;
    frame_ = &frame;
    // The scan's bytes that are there: scan_[i] is byte first_byte_ + i of the scan.
    if (begin < frame.scan_offset) {
      const uint64_t header = std::min<uint64_t>(frame.scan_offset - begin, bytes.size());
      bytes.remove_prefix(header);
      begin += header;
    }
    first_byte_ = begin - std::min<uint64_t>(begin, frame.scan_offset);
    scan_ = bytes;
    PrepareTables();
    PreparePlanes();
    StartRuns();
    kernels_.decode_streams(context_.get(), this, streams_);
    if (failed_ || (context_->undefined_code && !split_)) {
      context_->undefined_code = false;
      return absl::DataLossError("the entropy-coded data contradicts its entry points");
    }
    CopyEdges();
    out->Resize(region.width, region.height);
    WriteRows(region, out);
    return absl::OkStatus();
  }

  bool Start(Stream* stream) override;
  void Finish(const Stream& stream) override;

 private:
  struct Run {  // consecutive MCUs of one row that one stream decodes
    int row = 0, mcu = 0, count = 0;
    std::array<int, 4> dc = {};
    uint64_t min_end_bit = 0, max_end_bit = UINT64_MAX;  // where it must end
  };

  void PrepareTables();
  void PreparePlanes();
  void StartRuns();
  bool BeginSegment();
  void CopyEdges();
  void WriteRows(const Rect& region, RgbImage* out);
  const uint8_t* ComponentRow(int c, int y, const Rect& region, uint8_t* buffer) const;

  const SegmentKernels& kernels_ = ActiveSegmentKernels();
  const int streams_;
  std::unique_ptr<EntropyContext> context_;

  // The image at hand.
  const EntryView* entries_ = nullptr;
  const JpegFrame* frame_ = nullptr;
  absl::Span<const uint8_t> scan_;
  uint64_t first_byte_ = 0;
  RegionPlan plan_;
  std::array<Plane, 4> planes_;

  // Runs not yet started: from pending_ to the end of its segment, then from (next_row_, next_segment_) on.
  int first_segment_ = 0, last_segment_ = 0;
  int next_row_ = 0, next_segment_ = 0;
  Run pending_;
  uint64_t pending_byte_ = 0, pending_end_ = 0;  // scan bytes of the pending run's segment
  int pending_bit_ = 0;
  std::array<Run, kMaxStreams> runs_;
  bool failed_ = false, split_ = false;

  // What the tables were made for.
  std::array<HuffmanSpec, 8> built_;
  std::array<JpegComponent, 4> built_components_;
  int built_interval_ = 0, built_last_ = -1, built_num_components_ = 0;

  std::vector<uint8_t> plane_memory_, row_memory_;
};

void SegmentDecoder::Impl::PrepareTables() {
  for (int i = 0; i < 8; ++i) {
    const bool ac = i >= 4;
    if (!((ac ? frame_->ac_mask : frame_->dc_mask) >> (i & 3) & 1)) continue;
    const HuffmanSpec& spec = (ac ? frame_->ac : frame_->dc)[i & 3];
    if (spec == built_[i]) continue;  // most photos share the standard's tables
    built_[i] = spec;
    BuildDecodeTable(spec, ac, context_->lookup + (size_t{static_cast<uint32_t>(i)} << kLookupBits), &context_->slow[i]);
  }
  const int interval = entries_->interval(), last = frame_->mcus_per_row() % interval;
  if (built_components_ == frame_->components && built_num_components_ == frame_->num_components &&
      built_interval_ == interval && built_last_ == last) {
    return;
  }
  SetUpSegments(*frame_, interval, context_.get());
  built_components_ = frame_->components;
  built_num_components_ = frame_->num_components;
  built_interval_ = interval;
  built_last_ = last;
}

void SegmentDecoder::Impl::PreparePlanes() {
  const int interval = entries_->interval();
  first_segment_ = plan_.first_mcu / interval;
  last_segment_ = plan_.last_mcu / interval;
  size_t total = kRowMargin;
  std::array<size_t, 4> offsets = {};
  for (int c = 0; c < frame_->num_components; ++c) {
    const JpegComponent& component = frame_->components[c];
    Plane& plane = planes_[c];
    plane.columns = (last_segment_ - first_segment_ + 1) * interval * component.h * 8;
    plane.rows = (plan_.last_row - plan_.first_row + 1) * component.v * 8;
    plane.first_column = first_segment_ * interval * component.h * 8;
    plane.first_row = plan_.first_row * component.v * 8;
    plane.stride = (static_cast<size_t>(plane.columns) + 63) / 64 * 64 + kRowMargin;
    if (plane.stride % 4096 == 0) plane.stride += 64;  // rows at equal cache sets would evict each other
    offsets[c] = total;
    total += plane.stride * static_cast<size_t>(plane.rows) + kRowMargin;
  }
  if (plane_memory_.size() < total) plane_memory_.resize(total);
  for (int c = 0; c < frame_->num_components; ++c) planes_[c].origin = plane_memory_.data() + offsets[c];
}

void SegmentDecoder::Impl::StartRuns() {
  next_row_ = plan_.first_row;
  next_segment_ = first_segment_;
  pending_.count = 0;
  failed_ = split_ = false;
  context_->undefined_code = false;
}

// Makes the next segment the pending run. False when there is none, or when its entry is broken.
bool SegmentDecoder::Impl::BeginSegment() {
  if (next_row_ > plan_.last_row || failed_) return false;
  const int interval = entries_->interval();
  EntryPoint point;
  uint32_t end;
  if (!entries_->Point(next_row_, next_segment_, &point) || !entries_->SegmentEnd(next_row_, next_segment_, &end) ||
      end < point.byte || point.byte < first_byte_ || end > first_byte_ + scan_.size()) {
    failed_ = true;
    return false;
  }
  pending_.row = next_row_;
  pending_.mcu = next_segment_ * interval;
  pending_.count = std::min(interval, frame_->mcus_per_row() - pending_.mcu);
  std::copy(point.dc.begin(), point.dc.end(), pending_.dc.begin());
  pending_byte_ = point.byte;
  pending_end_ = end;
  pending_bit_ = point.bit;
  if (++next_segment_ > last_segment_) {
    next_segment_ = first_segment_;
    ++next_row_;
  }
  return true;
}

bool SegmentDecoder::Impl::Start(Stream* stream) {
  if (pending_.count == 0 && !BeginSegment()) return false;
  Run& run = runs_[stream->slot];
  run = pending_;
  const int interval = entries_->interval();
  const int segment = run.mcu / interval, segment_end = std::min((segment + 1) * interval, frame_->mcus_per_row());
  const uint64_t index = uint64_t{static_cast<uint32_t>(run.row)} * frame_->mcus_per_row() + run.mcu;
  bool at_marker = false;  // a restart marker follows the run
  if (frame_->restart_interval > 0) {
    const uint64_t left = frame_->restart_interval - index % frame_->restart_interval;
    at_marker = left <= uint64_t{static_cast<uint32_t>(run.count)};
    if (left < uint64_t{static_cast<uint32_t>(run.count)}) run.count = static_cast<int>(left);
  }
  const int blocks = frame_->blocks_per_mcu();
  const size_t capacity = (size_t{static_cast<uint32_t>(run.count * blocks)} * 64 + 2) * 31 / 8 + 16;

  uint8_t* bytes = context_->bytes[stream->slot];
  size_t consumed;
  const size_t size = kernels_.unstuff(scan_.data() + (pending_byte_ - first_byte_), pending_end_ - pending_byte_, bytes,
                                       std::min(capacity, kStreamBytes - 192), &consumed);
  std::memset(bytes + size, 0, 64);
  const uint64_t base = static_cast<uint64_t>(bytes - context_->bytes[0]) * 8;
  stream->bit = base + static_cast<uint64_t>(pending_bit_);

  // Where the run must end: at the next entry's bit, or fewer than 8 bits before a marker or the scan's end.
  EntryPoint next;
  const bool to_segment_end = run.mcu + run.count == segment_end;
  const bool last = run.row + 1 == frame_->mcu_rows() && segment_end == frame_->mcus_per_row() && to_segment_end;
  if (at_marker || last) {
    run.min_end_bit = base + size * 8 - std::min<uint64_t>(7, size * 8);
    run.max_end_bit = base + size * 8;
  } else {
    const bool row_ends = segment + 1 == entries_->segments_per_row();
    if (entries_->Point(row_ends ? run.row + 1 : run.row, row_ends ? 0 : segment + 1, &next) && size > 0) {
      run.min_end_bit = run.max_end_bit = base + (size - 1) * 8 + next.bit;
    } else {
      failed_ = true;
    }
  }

  // Positions: the segment's table says for each which Huffman table and place it has.
  const bool short_segment = segment_end - segment * interval < interval;
  const int begin = (short_segment ? kShortSegment : 0) + (run.mcu - segment * interval) * blocks * 64;
  stream->position = static_cast<uint64_t>(begin);
  stream->end = static_cast<uint64_t>(begin + run.count * blocks * 64);
  // What lies behind the region is not decoded; then nothing can be said of the run's end.
  const int wanted = std::min(run.count, plan_.last_mcu + 1 - run.mcu);
  if (wanted < run.count) stream->end = static_cast<uint64_t>(begin + std::max(wanted, 1) * blocks * 64);
  // Inside a segment the last symbol of a turn may belong to the next MCU.
  if (wanted < run.count || !to_segment_end) {
    run.min_end_bit = 0;
    run.max_end_bit = UINT64_MAX;
  }

  pending_.count -= run.count;
  if (pending_.count > 0) {  // the segment goes on behind a restart marker
    split_ = true;
    pending_.mcu += run.count;
    pending_.dc = {};
    pending_bit_ = 0;
    uint64_t at = pending_byte_ + consumed;
    while (at + 1 < pending_end_ && scan_[at - first_byte_] == 0xFF && scan_[at + 1 - first_byte_] == 0xFF) ++at;
    pending_byte_ = std::min(at + 2, pending_end_);
    if (pending_.mcu > plan_.last_mcu) pending_.count = 0;
  }
  return true;
}

void SegmentDecoder::Impl::Finish(const Stream& stream) {
  const Run& run = runs_[stream.slot];
  if (stream.bit < run.min_end_bit || stream.bit > run.max_end_bit) failed_ = true;
  const int interval = entries_->interval(), blocks = frame_->blocks_per_mcu();
  const int in_segment = run.mcu % interval;
  int16_t* coefficients = context_->coefficients[stream.slot];
  int16_t* const first = coefficients + in_segment * blocks * 64;
  const int mcus = std::min(run.count, static_cast<int>(plan_.last_mcu + 1 - run.mcu));
  int offset = 0;  // of the component's first block in an MCU
  for (int c = 0; c < frame_->num_components; ++c) {
    const JpegComponent& component = frame_->components[c];
    const int per_mcu = component.h * component.v;
    int dc = run.dc[c];
    for (int mcu = 0; mcu < mcus; ++mcu) {
      for (int i = 0; i < per_mcu; ++i) {
        int16_t& value = first[(mcu * blocks + offset + i) * 64];
        dc = static_cast<int16_t>(dc + value);
        value = static_cast<int16_t>(dc);
      }
    }
    const Plane& plane = planes_[c];
    int16_t* row_blocks[kMaxEntryInterval * 4];
    for (int y = 0; y < component.v; ++y) {
      int n = 0;
      for (int mcu = 0; mcu < mcus; ++mcu) {
        for (int x = 0; x < component.h; ++x) row_blocks[n++] = first + (mcu * blocks + offset + y * component.h + x) * 64;
      }
      uint8_t* out = plane.row((run.row * component.v + y) * 8) + (run.mcu * component.h * 8 - plane.first_column);
      kernels_.idct(row_blocks, n, frame_->quant[component.quant].data(), out, plane.stride);
    }
    offset += per_mcu;
  }
  // Behind the run: what the last two symbols left there.
  std::memset(first + static_cast<ptrdiff_t>(mcus) * blocks * 64, 0, 192 * sizeof(int16_t));
}

// Fancy upsampling at an image's edge takes the edge sample twice.
void SegmentDecoder::Impl::CopyEdges() {
  for (int c = 0; c < frame_->num_components; ++c) {
    const ComponentPlan& part = plan_.components[c];
    if (part.upsampling != Upsampling::kFancyH2V1 && part.upsampling != Upsampling::kFancyH2V2) continue;
    const Plane& plane = planes_[c];
    const int right = part.width - plane.first_column;
    for (int y = 0; y < plane.rows; ++y) {
      uint8_t* row = plane.origin + plane.stride * static_cast<size_t>(y);
      if (plane.first_column == 0) row[-1] = row[0];
      if (right <= plane.columns) row[right] = row[right - 1];
    }
  }
}

// Row y of the region's columns at the image's resolution: in `buffer`, or where it lies already.
const uint8_t* SegmentDecoder::Impl::ComponentRow(int c, int y, const Rect& region, uint8_t* buffer) const {
  const ComponentPlan& part = plan_.components[c];
  const Plane& plane = planes_[c];
  const int sample_y = y / part.v_expand;
  const uint8_t* near = plane.row(sample_y) - plane.first_column;
  const int other = y % part.v_expand == 0 ? std::max(sample_y - 1, 0) : std::min(sample_y + 1, part.height - 1);
  const int first = region.left / part.h_expand;
  const int n = (region.left + region.width - 1) / part.h_expand - first + 1;
  switch (part.upsampling) {
    case Upsampling::kNone:
      return near + region.left;
    case Upsampling::kFancyH2V1:
      kernels_.upsample_h2v1(near + first, n, buffer);
      return buffer + region.left % 2;
    case Upsampling::kFancyH2V2:
      kernels_.upsample_h2v2(near + first, plane.row(other) - plane.first_column + first, n, buffer);
      return buffer + region.left % 2;
    case Upsampling::kFancyH1V2:
      kernels_.upsample_h1v2(near + region.left, plane.row(other) - plane.first_column + region.left, region.width,
                             y % 2 == 0 ? 1 : 2, buffer);
      return buffer;
    case Upsampling::kReplicate:
      for (int x = 0; x < region.width; ++x) buffer[x] = near[(region.left + x) / part.h_expand];
      return buffer;
  }
  return nullptr;
}

void SegmentDecoder::Impl::WriteRows(const Rect& region, RgbImage* out) {
  const size_t row_bytes = (static_cast<size_t>(region.width) + 63) / 64 * 64 + 2 * kRowMargin;
  if (row_memory_.size() < 8 * row_bytes) row_memory_.resize(8 * row_bytes);
  const auto buffer = [&](int i) { return row_memory_.data() + row_bytes * static_cast<size_t>(i); };
  for (int y = 0; y < region.height; ++y) {
    const uint8_t* rows[4];
    for (int c = 0; c < frame_->num_components; ++c) rows[c] = ComponentRow(c, region.top + y, region, buffer(c));
    if (frame_->color == JpegColor::kGrey) rows[1] = rows[2] = rows[0];
    if (frame_->color == JpegColor::kYCbCr || frame_->color == JpegColor::kYcck) {
      kernels_.ycc_to_rgb(rows[0], rows[1], rows[2], region.width, buffer(4), buffer(5), buffer(6));
      for (int c = 0; c < 3; ++c) rows[c] = buffer(4 + c);
    }
    if (frame_->num_components == 4) {
      const bool inverted = frame_->color == JpegColor::kYcck;  // libjpeg gives 255 − R, 255 − G, 255 − B
      for (int x = 0; x < region.width; ++x) {
        uint8_t cmyk[4] = {rows[0][x], rows[1][x], rows[2][x], rows[3][x]};
        for (int i = 0; inverted && i < 3; ++i) cmyk[i] = static_cast<uint8_t>(255 - cmyk[i]);
        CmykToRgb(cmyk, 1, out->row(y) + 3 * x);
      }
    } else {
      kernels_.interleave(rows[0], rows[1], rows[2], region.width, out->row(y));
    }
  }
}

SegmentDecoder::SegmentDecoder(int streams) : impl_(std::make_unique<Impl>(std::clamp(streams, 1, kMaxStreams))) {}
SegmentDecoder::~SegmentDecoder() = default;

absl::StatusOr<ByteRange> SegmentDecoder::NeededBytes(const EntryView& entries, const Rect& region) {
  HEADRACE_ASSIGN_OR_RETURN(const RegionPlan plan, PlanRegion(entries.frame(), region));
  EntryPoint first;
  uint32_t end;
  if (!entries.Point(plan.first_row, plan.first_mcu / entries.interval(), &first) ||
      !entries.SegmentEnd(plan.last_row, plan.last_mcu / entries.interval(), &end) || end < first.byte) {
    return absl::DataLossError("entry data: the entries are out of order");
  }
  return ByteRange{uint64_t{entries.frame().scan_offset} + first.byte, uint64_t{entries.frame().scan_offset} + end};
}

absl::Status SegmentDecoder::Decode(const EntryView& entries, const JpegFrame& frame, absl::Span<const uint8_t> bytes,
                                    uint64_t begin, const Rect& region, RgbImage* out) {
  return impl_->Decode(entries, frame, bytes, begin, region, out);
}

const char* SegmentDecoderTarget() { return ActiveSegmentKernels().target; }

}  // namespace headrace
