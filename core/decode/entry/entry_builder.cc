#include "core/decode/entry/entry_builder.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/decode/entry/scan_walker.h"

namespace headrace {
namespace {

// Bits of it are counted in 32 bits.
constexpr uint64_t kMaxCleanBytes = uint64_t{1} << 28;

// What a larger image needed goes back to the system.
constexpr size_t kMaxKeptBytes = size_t{4} << 20;

absl::Status Flawed(const std::string& what) { return absl::InvalidArgumentError(what); }

}  // namespace

class EntryBuilder::Impl {
 public:
  absl::StatusOr<EntryPoints> Build(absl::Span<const uint8_t> file, const JpegFrame& frame, int interval) {
    entries_.interval = interval;
    entries_.points.clear();
    const absl::Status status = Fill(file, frame);
    if (clean_.size() > kMaxKeptBytes) {
      clean_ = {};
      ends_ = {};
      dc_differences_ = {};
    }
    HEADRACE_RETURN_IF_ERROR(status);
    return entries_;
  }

 private:
  absl::Status Fill(absl::Span<const uint8_t> file, const JpegFrame& frame) {
    HEADRACE_RETURN_IF_ERROR(Unstuff(file.subspan(frame.scan_offset), frame));
    walker_.SetTables(frame);
    HEADRACE_RETURN_IF_ERROR(FindBlocks(frame));
    return AddPoints(frame);
  }

  // One restart interval: where it begins, in the clean bytes and in the file's.
  struct Interval {
    uint64_t clean_begin, clean_end;
    uint32_t stuffed_begin;
    size_t first_stuffed;  // in stuffed_
  };

  // Fills clean_ (the data without stuffing and markers), stuffed_ (clean positions of the bytes 0xFF that were followed
  // by a stuffed zero) and intervals_.
  absl::Status Unstuff(absl::Span<const uint8_t> scan, const JpegFrame& frame) {
    clean_.resize(scan.size() + ScanWalker::kSlackBytes);
    stuffed_.clear();
    intervals_.clear();
    uint8_t* out = clean_.data();
    const uint8_t *in = scan.data(), *const end = in + scan.size();
    Interval current = {0, 0, 0, 0};
    for (;;) {
      const auto* ff = static_cast<const uint8_t*>(std::memchr(in, 0xFF, end - in));
      if (ff == nullptr || ff + 1 == end) return Flawed("the scan has no end");
      std::memcpy(out, in, ff - in);
      out += ff - in;
      in = ff + 1;
      if (*in == 0) {
        stuffed_.push_back(static_cast<uint32_t>(out - clean_.data()));
        *out++ = 0xFF;
        ++in;
        continue;
      }
      while (in < end && *in == 0xFF) ++in;  // fill bytes before a marker
      if (in == end) return Flawed("the scan has no end");
      const uint8_t marker = *in++;
      if (marker == 0) return Flawed("fill bytes inside the data");
      current.clean_end = out - clean_.data();
      intervals_.push_back(current);
      if (marker >= 0xD0 && marker <= 0xD7) {
        if (frame.restart_interval == 0 || (marker & 7) != ((intervals_.size() - 1) & 7)) {
          return Flawed("a restart marker out of place");
        }
        current = {current.clean_end, 0, static_cast<uint32_t>(in - scan.data()), stuffed_.size()};
        continue;
      }
      if (marker != 0xD9) return Flawed(absl::StrCat("marker ", marker, " behind the scan"));
      if (in - ff > ptrdiff_t{kMaxEndBytes}) return Flawed("too many fill bytes before EOI");
      entries_.scan_bytes = static_cast<uint32_t>(ff - scan.data());
      std::memset(out, 0, clean_.data() + clean_.size() - out);
      return absl::OkStatus();
    }
  }

  // Fills ends_, block by block.
  absl::Status FindBlocks(const JpegFrame& frame) {
    const uint64_t total = uint64_t{static_cast<uint32_t>(frame.mcus_per_row())} * frame.mcu_rows();
    const uint64_t per_interval = frame.restart_interval ? frame.restart_interval : total;
    if ((total + per_interval - 1) / per_interval != intervals_.size()) return Flawed("restart markers are missing");
    if (intervals_.back().clean_end > kMaxCleanBytes) return Flawed("too much entropy-coded data");
    ends_.clear();
    dc_differences_.clear();
    uint64_t left = total;
    for (const Interval& interval : intervals_) {
      const uint64_t mcus = std::min(left, per_interval), end = interval.clean_end * 8;
      if (!walker_.Walk(clean_.data(), interval.clean_begin * 8, end, mcus * frame.blocks_per_mcu(), &ends_,
                        &dc_differences_)) {
        return Flawed("an undefined Huffman code, a block of more than 64 coefficients, or data that ends too early");
      }
      if (end - ends_.back() >= 8) return Flawed("bytes are left over behind the last block of an interval");
      left -= mcus;
    }
    return absl::OkStatus();
  }

  // Follows the DC predictions.
  absl::Status AddPoints(const JpegFrame& frame) {
    const int per_row = frame.mcus_per_row(), rows = frame.mcu_rows(), interval = entries_.interval;
    const int blocks = frame.blocks_per_mcu();
    std::array<uint8_t, 10> component_of = {};
    int block = 0;
    for (int c = 0; c < frame.num_components; ++c) {
      for (int i = 0; i < frame.components[c].h * frame.components[c].v; ++i) component_of[block++] = c;
    }
    entries_.points.reserve(size_t{static_cast<uint32_t>(rows)} * ((per_row + interval - 1) / interval));
    size_t interval_index = 0, stuffed_index = 0;
    uint32_t begin = 0, row_begin = 0, left = frame.restart_interval;
    std::array<int, 4> dc = {};
    const uint32_t* end = ends_.data();
    const int16_t* difference = dc_differences_.data();
    for (int row = 0; row < rows; ++row) {
      for (int mcu = 0; mcu < per_row; ++mcu, --left) {
        if (left == 0 && frame.restart_interval > 0 && interval_index + 1 < intervals_.size()) {
          begin = static_cast<uint32_t>(intervals_[++interval_index].clean_begin * 8);
          left = frame.restart_interval;
          dc = {};
        }
        if (mcu % interval == 0) {
          AddPoint(begin, dc, interval_index, &stuffed_index);
          const uint32_t byte = entries_.points.back().byte;
          if (mcu == 0) row_begin = byte;
          if (byte - row_begin > kMaxRowSpan) return Flawed("a row of MCUs that is too long");
        }
        for (int b = 0; b < blocks; ++b) {
          int& value = dc[component_of[b]];
          value += *difference++;
          if (value < -2048 || value > 2047) return Flawed("a DC coefficient out of range");
          begin = *end++;
        }
      }
    }
    return absl::OkStatus();
  }

  void AddPoint(uint64_t position, const std::array<int, 4>& dc, size_t interval, size_t* stuffed_index) {
    const Interval& current = intervals_[interval];
    const uint64_t clean = position >> 3;
    while (*stuffed_index < stuffed_.size() && stuffed_[*stuffed_index] < clean) ++*stuffed_index;
    EntryPoint point;
    point.byte = static_cast<uint32_t>(current.stuffed_begin + (clean - current.clean_begin) +
                                       (*stuffed_index - current.first_stuffed));  // stuffed zeros since it began
    point.bit = position & 7;
    for (int c = 0; c < 4; ++c) point.dc[c] = static_cast<int16_t>(dc[c]);
    entries_.points.push_back(point);
  }

  std::vector<uint8_t> clean_;
  std::vector<uint32_t> stuffed_;
  std::vector<Interval> intervals_;
  ScanWalker walker_;
  std::vector<uint32_t> ends_;  // the bit of clean_ at which each block ends
  std::vector<int16_t> dc_differences_;
  EntryPoints entries_;
};

EntryBuilder::EntryBuilder() : impl_(std::make_unique<Impl>()) {}
EntryBuilder::~EntryBuilder() = default;

absl::StatusOr<EntryPoints> EntryBuilder::Build(absl::Span<const uint8_t> file, const JpegFrame& frame, int interval) {
  return impl_->Build(file, frame, interval);
}

}  // namespace headrace
