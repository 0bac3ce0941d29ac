#include "core/decode/segment/segment_runs.h"

#include <algorithm>
#include <cstring>

namespace headrace {

SegmentRuns::SegmentRuns(int streams, const SegmentKernels& kernels)
    : streams_(streams), kernels_(kernels), context_(std::make_unique<EntropyContext>()) {}

void SegmentRuns::PrepareTables() {
  const JpegFrame& frame = *job_.frame;
  for (int i = 0; i < 8; ++i) {
    const bool ac = i >= 4;
    if (!((ac ? frame.ac_mask : frame.dc_mask) >> (i & 3) & 1)) continue;
    const HuffmanSpec& spec = (ac ? frame.ac : frame.dc)[static_cast<size_t>(i & 3)];
    if (spec == built_[static_cast<size_t>(i)]) continue;  // most photos share the standard's tables
    built_[static_cast<size_t>(i)] = spec;
    BuildDecodeTable(spec, ac, i & 3, context_.get());
  }
  for (size_t i = 0; i < quant_.size(); ++i) {
    if (!(frame.quant_mask >> i & 1)) continue;
    for (size_t k = 0; k < 64; ++k) quant_[i][k] = frame.quant[i][kNaturalOrder[k]];
  }
  if (built_components_ == frame.components && built_num_components_ == frame.num_components &&
      built_interval_ == interval_) {
    return;
  }
  SetUpSegments(frame, interval_, context_.get());
  built_components_ = frame.components;
  built_num_components_ = frame.num_components;
  built_interval_ = interval_;
}

void SegmentRuns::Begin(const Job& job) {
  job_ = job;
  interval_ = job.entries->interval();
  blocks_ = job.frame->blocks_per_mcu();
  PrepareTables();
  first_segment_ = job.plan->first_mcu / interval_;
  last_segment_ = job.plan->last_mcu / interval_;
  next_row_ = complete_ = job.plan->first_row;
  next_segment_ = first_segment_;
  pending_.count = 0;
  has_end_point_ = failed_ = false;
  context_->damaged = false;
  unfinished_.assign(static_cast<size_t>(job.ring_rows), 0);
  // A region that was given up half-way leaves coefficients behind.
  for (int i = 0; i < kMaxStreams; ++i) {
    if (running_[static_cast<size_t>(i)]) std::memset(context_->coefficients[i], 0, sizeof context_->coefficients[i]);
    running_[static_cast<size_t>(i)] = false;
    context_->streams[static_cast<size_t>(i)] = {0, kIdlePosition, UINT64_MAX};
  }
}

bool SegmentRuns::Complete(int row, int oldest) {
  row_limit_ = std::min(oldest + job_.ring_rows, job_.plan->last_row + 1);
  while (complete_ <= row && !failed_) {
    bool any = false;
    for (int i = 0; i < streams_; ++i) {
      bool& running = running_[static_cast<size_t>(i)];
      if (!running) running = Start(i);
      any |= running;
    }
    if (failed_ || !any) break;
    for (bool all_run = true; all_run && complete_ <= row;) {
      const int event = kernels_.decode_turns(context_.get());
      const int stream = event & (kSlowTurn - 1);
      const EntropyContext::Stream& state = context_->streams[static_cast<size_t>(stream)];
      if (state.position < state.end) {
        SlowSymbol(context_.get(), stream);
        if (state.position < state.end) continue;
      }
      Finish(stream);
      running_[static_cast<size_t>(stream)] = all_run = Start(stream);
    }
  }
  failed_ |= complete_ <= row || context_->damaged;
  return !failed_;
}

// Makes the next segment the pending run. False when there is none now, or when its entry is broken.
bool SegmentRuns::BeginSegment() {
  if (next_row_ >= row_limit_ || failed_) return false;
  const EntryView& entries = *job_.entries;
  const bool has_begin = next_segment_ > first_segment_ && has_end_point_;
  if (has_begin) begin_point_ = end_point_;
  const bool row_ends = next_segment_ + 1 == entries.segments_per_row();
  const bool scan_ends = row_ends && next_row_ + 1 == entries.mcu_rows();
  has_end_point_ = !scan_ends;
  if ((!has_begin && !entries.Point(next_row_, next_segment_, &begin_point_)) ||
      (has_end_point_ && !entries.Point(next_row_ + row_ends, row_ends ? 0 : next_segment_ + 1, &end_point_))) {
    failed_ = true;
    return false;
  }
  const uint32_t end = has_end_point_ ? std::min(end_point_.byte + 1, entries.scan_bytes()) : entries.scan_bytes();
  if (end < begin_point_.byte || begin_point_.byte < job_.first_byte || end > job_.first_byte + job_.scan.size()) {
    failed_ = true;
    return false;
  }
  if (next_segment_ == first_segment_) {
    *UnfinishedRuns(next_row_) = last_segment_ - first_segment_ + 1;
  }
  // The next two segments' bytes, which a page cache's copy may have left far away (2 % of a sample's time).
  const size_t ahead = static_cast<size_t>(end - job_.first_byte) + 256;
  for (size_t at = ahead; at < std::min(ahead + 512, job_.scan.size()); at += 64) __builtin_prefetch(job_.scan.data() + at);
  pending_.row = next_row_;
  pending_.mcu = next_segment_ * interval_;
  pending_.count = std::min(interval_, job_.frame->mcus_per_row() - pending_.mcu);
  pending_.dc = begin_point_.dc;
  pending_byte_ = begin_point_.byte;
  pending_end_ = end;
  pending_bit_ = begin_point_.bit;
  if (++next_segment_ > last_segment_) {
    next_segment_ = first_segment_;
    ++next_row_;
  }
  return true;
}

bool SegmentRuns::Start(int stream) {
  EntropyContext::Stream& state = context_->streams[static_cast<size_t>(stream)];
  if (pending_.count == 0 && !BeginSegment()) {
    state = {0, kIdlePosition, UINT64_MAX};
    return false;
  }
  Run& run = runs_[static_cast<size_t>(stream)];
  run = pending_;
  const JpegFrame& frame = *job_.frame;
  const int segment_end = std::min((run.mcu / interval_ + 1) * interval_, frame.mcus_per_row());
  bool at_marker = false;  // a restart marker follows the run
  if (frame.restart_interval > 0) {
    const uint64_t index = uint64_t{static_cast<uint32_t>(run.row)} * frame.mcus_per_row() + run.mcu;
    const uint64_t left = frame.restart_interval - index % frame.restart_interval;
    at_marker = left <= uint64_t{static_cast<uint32_t>(run.count)};
    if (at_marker) run.count = static_cast<int>(left);
  }

  const size_t most = (size_t{static_cast<uint32_t>(run.count * blocks_)} * 64 + kSymbolsPerTurn) * 31 / 8 + 16;
  uint8_t* bytes = context_->bytes[stream];
  size_t consumed;
  const size_t size = kernels_.unstuff(job_.scan.data() + (pending_byte_ - job_.first_byte), pending_end_ - pending_byte_,
                                       bytes, std::min(most, kMaxStreamBytes - 192), &consumed);
  std::memset(bytes + size, 0, 64);
  const uint64_t base = static_cast<uint64_t>(bytes - context_->bytes[0]) * 8;
  state.bit = base + static_cast<uint64_t>(pending_bit_);

  // What lies behind the region is not decoded; then of the run's end only this can be said, that it is among its bytes.
  run.decoded = std::max(std::min(run.count, job_.plan->last_mcu + 1 - run.mcu), 1);
  state.position = static_cast<uint64_t>((interval_ - run.decoded) * blocks_ * kBlockPositions);
  state.end = static_cast<uint64_t>(interval_ * blocks_ * kBlockPositions - kBlockPositions + kBehindBlock);
  SetEnd(base, size, at_marker, &run);
  const bool to_segment_end = run.mcu + run.count == segment_end;
  pending_.count -= run.count;
  pending_.mcu += run.count;
  if (pending_.mcu > job_.plan->last_mcu) pending_.count = 0;
  const bool last = to_segment_end && !has_end_point_;
  if (at_marker && !last) {
    PassMarker(consumed, to_segment_end);
  } else {
    failed_ |= pending_byte_ + consumed != pending_end_;
  }
  return true;
}

// Where the run must end: at the next entry's bit, or fewer than 8 bits before a marker or the scan's end.
void SegmentRuns::SetEnd(uint64_t base, uint64_t size, bool at_marker, Run* run) {
  run->min_end_bit = 0;
  run->max_end_bit = base + size * 8;  // behind it lie bytes of other runs, perhaps of other images
  run->checks_dc = false;
  if (run->decoded < run->count) return;
  failed_ |= size == 0;
  if (at_marker || !has_end_point_) {
    run->min_end_bit = run->max_end_bit - std::min<uint64_t>(7, size * 8);
  } else {
    run->min_end_bit = run->max_end_bit = base + size * 8 - 8 + end_point_.bit;
    run->checks_dc = true;
    run->end_dc = end_point_.dc;
  }
}

// A restart marker follows the run, of which `consumed` bytes were passed; behind it the segment goes on, or the next begins.
void SegmentRuns::PassMarker(size_t consumed, bool to_segment_end) {
  const uint64_t index = uint64_t{static_cast<uint32_t>(pending_.row)} * job_.frame->mcus_per_row() + pending_.mcu;
  const uint8_t expected = static_cast<uint8_t>(0xD0 + (index / job_.frame->restart_interval - 1) % 8);
  const auto at = [&](uint64_t byte) { return byte < pending_end_ ? job_.scan[byte - job_.first_byte] : uint8_t{0}; };
  uint64_t marker = pending_byte_ + consumed;
  while (at(marker) == 0xFF && at(marker + 1) == 0xFF) ++marker;
  pending_byte_ = std::min(marker + 2, pending_end_);
  failed_ |= at(marker) != 0xFF || at(marker + 1) != expected || (to_segment_end && pending_byte_ != end_point_.byte);
  pending_.dc = {};
  pending_bit_ = 0;
  if (pending_.count > 0) ++*UnfinishedRuns(pending_.row);
}

void SegmentRuns::Finish(int stream) {
  const Run& run = runs_[static_cast<size_t>(stream)];
  const EntropyContext::Stream& state = context_->streams[static_cast<size_t>(stream)];
  failed_ |= state.bit < run.min_end_bit || state.bit > run.max_end_bit || state.position % kBehindBlock != 0;
  const int mcus = run.decoded;
  int16_t* const first = context_->coefficients[stream] + (interval_ - mcus) * blocks_ * kBlockPositions;
  const int skipped = std::clamp(job_.plan->first_mcu - run.mcu, 0, mcus);
  int16_t* mcu = first;
  std::array<int, 4> listed = {};  // blocks by quantisation table
  for (int c = 0; c < job_.frame->num_components; ++c) {
    const JpegComponent& component = job_.frame->components[static_cast<size_t>(c)];
    int& n = listed[component.quant];
    n += PlaceBlocks(run, c, mcu, skipped, blocks_of_run_[component.quant].data() + n);
    mcu += component.h * component.v * kBlockPositions;
  }
  std::memset(first, 0, static_cast<size_t>(skipped * blocks_ * kBlockPositions) * sizeof(int16_t));
  for (size_t quant = 0; quant < listed.size(); ++quant) {
    if (listed[quant] == 0) continue;
    kernels_.idct(blocks_of_run_[quant].data(), listed[quant], quant_[quant].data(), job_.planes[0].stride);
  }
  --*UnfinishedRuns(run.row);
  while (complete_ < next_row_ && *UnfinishedRuns(complete_) == 0) ++complete_;
}

// Adds the differences of the component's DC coefficients up, and lists its blocks from MCU `skipped` of the run on.
// Returns their number.
int SegmentRuns::PlaceBlocks(const Run& run, int c, int16_t* first, int skipped, IdctBlock* list) {
  const JpegComponent& component = job_.frame->components[static_cast<size_t>(c)];
  const int h = component.h, v = component.v;
  const ptrdiff_t step = blocks_ * kBlockPositions;
  int16_t dc = run.dc[static_cast<size_t>(c)];
  int16_t* mcu = first;
  for (; mcu != first + skipped * step; mcu += step) {
    for (int i = 0; i < h * v; ++i) dc = static_cast<int16_t>(dc + mcu[kBlockPositions * i]);
  }
  const PlaneRing& plane = job_.planes[c];
  uint8_t* out = plane.row(run.row * v * 8) + (run.mcu + skipped) * h * 8;
  IdctBlock* next = list;
  for (int16_t* const end = first + run.decoded * step; mcu != end; mcu += step, out += 8 * h) {
    *mcu = dc = static_cast<int16_t>(dc + *mcu);
    *next++ = {mcu, out};
    for (int i = 1; i < h * v; ++i) {
      int16_t* const block = mcu + kBlockPositions * i;
      *block = dc = static_cast<int16_t>(dc + *block);
      *next++ = {block, out + static_cast<size_t>(i / h) * 8 * plane.stride + 8 * (i % h)};
    }
  }
  failed_ |= run.checks_dc && dc != run.end_dc[static_cast<size_t>(c)];
  return static_cast<int>(next - list);
}

}  // namespace headrace
