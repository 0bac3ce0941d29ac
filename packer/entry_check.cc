#include "packer/entry_check.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/decode/entry/canonical_codes.h"
#include "core/decode/entry/entry_data.h"

namespace headrace {
namespace {

absl::Span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Bits of one segment, without stuffed zeros and markers.
class SegmentBits {
 public:
  // `segment` lies at byte `begin` of the scan.
  void Load(absl::Span<const uint8_t> segment, uint32_t begin, int bit) {
    bytes_.clear();
    origin_.clear();
    restarts_.clear();
    for (size_t i = 0; i < segment.size(); ++i) {
      if (segment[i] == 0xFF && i + 1 < segment.size() && segment[i + 1] != 0) {
        while (i + 1 < segment.size() && segment[i + 1] == 0xFF) ++i;  // fill bytes
        ++i;                                                           // the marker's code
        restarts_.push_back(bytes_.size());
        continue;
      }
      bytes_.push_back(segment[i]);
      origin_.push_back(begin + static_cast<uint32_t>(i));
      i += segment[i] == 0xFF && i + 1 < segment.size();
    }
    at_ = static_cast<size_t>(bit);
    next_restart_ = 0;
  }

  uint32_t Take(int count) {
    const uint32_t value = Peek(count);
    at_ += static_cast<size_t>(count);
    return value;
  }
  // At most 16 bits; zeros behind the end.
  uint32_t Peek(int count) const {
    uint32_t value = 0;
    for (size_t i = at_ / 8; i < at_ / 8 + 3; ++i) value = value << 8 | (i < bytes_.size() ? bytes_[i] : 0u);
    return value << at_ % 8 >> (24 - count) & ((1u << count) - 1);
  }
  // Goes behind the next restart marker; false when it is not the next thing.
  bool Restart() {
    if (next_restart_ == restarts_.size()) return false;
    const size_t restart = 8 * restarts_[next_restart_++];
    if (at_ > restart || restart - at_ >= 8) return false;
    at_ = restart;
    return true;
  }
  bool IsAt(uint32_t byte, int bit) const {
    return at_ / 8 < bytes_.size() && origin_[at_ / 8] == byte && static_cast<int>(at_ % 8) == bit;
  }
  // Fewer than 8 bits are left of everything, or of what is in front of the last marker.
  bool IsAtEnd() const {
    const bool marker_behind = next_restart_ + 1 == restarts_.size() && restarts_.back() + 1 >= bytes_.size();
    const size_t end = 8 * (marker_behind ? restarts_.back() : bytes_.size());
    return at_ <= end && end - at_ < 8;
  }

 private:
  std::vector<uint8_t> bytes_;
  std::vector<uint32_t> origin_;  // where they lie in the scan
  std::vector<size_t> restarts_;  // how many bytes lie in front of each restart marker
  size_t at_ = 0, next_restart_ = 0;
};

class Checker {
 public:
  Checker(const EntryView& view, const JpegFrame& frame, absl::Span<const uint8_t> scan, const JpegCoefficients& expected)
      : view_(view), frame_(frame), scan_(scan), expected_(expected) {
    for (size_t i = 0; i < 4; ++i) {
      if (frame.dc_mask >> i & 1) dc_codes_[i].Build(frame.dc[i]);
      if (frame.ac_mask >> i & 1) ac_codes_[i].Build(frame.ac[i]);
    }
  }

  absl::Status Run() {
    for (int row = 0; row < view_.mcu_rows(); ++row) {
      for (int segment = 0; segment < view_.segments_per_row(); ++segment) {
        if (const char* flaw = Check(row, segment)) {
          return absl::DataLossError(absl::StrCat("row ", row, ", segment ", segment, ": ", flaw));
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  const char* Check(int row, int segment) {
    EntryPoint point;
    uint32_t end;
    if (!view_.Point(row, segment, &point) || !view_.SegmentEnd(row, segment, &end) || end < point.byte) {
      return "the entry point lies outside the scan";
    }
    bits_.Load(scan_.subspan(point.byte, end - point.byte), point.byte, point.bit);
    dc_ = point.dc;
    const int per_row = frame_.mcus_per_row(), first = segment * view_.interval();
    for (int mcu = first; mcu < std::min(first + view_.interval(), per_row); ++mcu) {
      const int64_t number = int64_t{row} * per_row + mcu;
      if (mcu > first && IsRestart(number)) {
        if (!bits_.Restart()) return "a restart marker is not where it must be";
        dc_ = {};
      }
      if (!CheckMcu(row, mcu)) return "coefficients differ from libjpeg's";
    }
    const bool last_of_row = segment + 1 == view_.segments_per_row();
    if (last_of_row && row + 1 == view_.mcu_rows()) return bits_.IsAtEnd() ? nullptr : "the scan does not end here";
    const int next_row = last_of_row ? row + 1 : row, next_segment = last_of_row ? 0 : segment + 1;
    if (!view_.Point(next_row, next_segment, &point)) return "the next entry point lies outside the scan";
    const int64_t next = int64_t{next_row} * per_row + int64_t{next_segment} * view_.interval();
    if (IsRestart(next)) {
      const bool zero = point.dc == std::array<int16_t, 4>{} && point.bit == 0;
      return zero && bits_.IsAtEnd() ? nullptr : "the next entry point does not begin a restart interval";
    }
    for (size_t c = 0; c < frame_.num_components; ++c) {
      if (point.dc[c] != dc_[c]) return "the next entry point has other DC predictions";
    }
    return bits_.IsAt(point.byte, point.bit) ? nullptr : "the next entry point is not where this segment ends";
  }

  bool IsRestart(int64_t mcu) const { return frame_.restart_interval != 0 && mcu % frame_.restart_interval == 0; }

  bool CheckMcu(int row, int mcu) {
    for (int c = 0; c < frame_.num_components; ++c) {
      const JpegComponent& component = frame_.components[static_cast<size_t>(c)];
      const JpegCoefficients::Component& expected = expected_.components[static_cast<size_t>(c)];
      for (int v = 0; v < component.v; ++v) {
        for (int h = 0; h < component.h; ++h) {
          const int block_row = row * component.v + v, column = mcu * component.h + h;
          std::array<int16_t, 64> block = {};
          if (!Decode(c, &block) || block_row >= expected.rows || column >= expected.blocks_per_row ||
              !std::equal(block.begin(), block.end(), expected.block(block_row, column))) {
            return false;
          }
        }
      }
    }
    return true;
  }

  bool Decode(int c, std::array<int16_t, 64>* block) {
    const JpegComponent& component = frame_.components[static_cast<size_t>(c)];
    uint8_t symbol;
    if (!Symbol(dc_codes_[component.dc], &symbol)) return false;
    dc_[static_cast<size_t>(c)] = (*block)[0] = static_cast<int16_t>(dc_[static_cast<size_t>(c)] + Value(symbol));
    for (int k = 1; k < 64; ++k) {
      if (!Symbol(ac_codes_[component.ac], &symbol)) return false;
      const int size = symbol & 15, run = symbol >> 4;
      if (size == 0 && run != 15) return true;
      k += run;
      if (k > 63) return false;
      (*block)[kNaturalOrder[static_cast<size_t>(k)]] = static_cast<int16_t>(Value(size));
    }
    return true;
  }

  bool Symbol(const CanonicalCodes& codes, uint8_t* symbol) {
    const int bits = codes.Decode(bits_.Peek(16), symbol);
    bits_.Take(bits);
    return bits > 0;
  }

  // T.81, F.2.2.1.
  int Value(int size) {
    const int extra = static_cast<int>(bits_.Take(size));
    return size > 0 && extra < 1 << (size - 1) ? extra - (1 << size) + 1 : extra;
  }

  const EntryView& view_;
  const JpegFrame& frame_;
  const absl::Span<const uint8_t> scan_;
  const JpegCoefficients& expected_;
  std::array<CanonicalCodes, 4> dc_codes_, ac_codes_;
  std::array<int16_t, 4> dc_ = {};
  SegmentBits bits_;
};

}  // namespace

absl::Status CheckEntries(absl::Span<const uint8_t> file, const std::string& tables, const std::string& entries,
                          const JpegCoefficients& expected) {
  HEADRACE_ASSIGN_OR_RETURN(const EntryView view, EntryView::Parse(Bytes(entries), file.size()));
  JpegFrame frame = view.frame();
  HEADRACE_RETURN_IF_ERROR(ApplyTables(Bytes(tables), &frame));
  if (expected.components.size() != frame.num_components) return absl::DataLossError("another number of components");
  return Checker(view, frame, file.subspan(frame.scan_offset, view.scan_bytes()), expected).Run();
}

}  // namespace headrace
