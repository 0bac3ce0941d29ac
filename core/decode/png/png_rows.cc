#include "core/decode/png/png_rows.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace headrace {
namespace {

constexpr size_t kBlockBytes = 65'536;  // Pillow's MAXBLOCK
// Rows are inflated together: near the end of its room zlib goes byte by byte.
constexpr size_t kRoomBytes = 65'536;

// Adds to each sample what is predicted from those on its left, above and above on the left.
template <size_t kPixelBytes, typename Predict>
void AddPredicted(const uint8_t* above, uint8_t* row, size_t size, Predict predict) {
  int left[kPixelBytes] = {}, corner[kPixelBytes] = {};
  for (size_t x = 0; x < size; x += kPixelBytes) {
    for (size_t i = 0; i < kPixelBytes; ++i) {
      const int up = above[x + i];
      left[i] = (row[x + i] + predict(left[i], up, corner[i])) & 255;
      corner[i] = up;
      row[x + i] = static_cast<uint8_t>(left[i]);
    }
  }
}

int Paeth(int left, int up, int corner) {
  const int to_left = std::abs(up - corner), to_up = std::abs(left - corner), to_corner = std::abs(left + up - 2 * corner);
  const int nearer = to_up <= to_corner ? up : corner;
  return to_left <= to_up && to_left <= to_corner ? left : nearer;
}

// Undoes a row's filter (ISO/IEC 15948, 9.2). False if there is no such filter.
template <size_t kPixelBytes>
bool Unfilter(const uint8_t* above, uint8_t* row, size_t size) {
  ++above;
  const uint8_t filter = *row++;
  switch (filter) {
    case 0:
      return true;
    case 1:
      AddPredicted<kPixelBytes>(above, row, size, [](int left, int, int) { return left; });
      return true;
    case 2:
      for (size_t i = 0; i < size; ++i) row[i] = static_cast<uint8_t>(row[i] + above[i]);
      return true;
    case 3:
      AddPredicted<kPixelBytes>(above, row, size, [](int left, int up, int) { return (left + up) / 2; });
      return true;
    case 4:
      AddPredicted<kPixelBytes>(above, row, size, &Paeth);
      return true;
    default:
      return false;
  }
}

bool Unfilter(size_t pixel_bytes, const uint8_t* above, uint8_t* row, size_t size) {
  switch (pixel_bytes) {
    case 1:
      return Unfilter<1>(above, row, size);
    case 2:
      return Unfilter<2>(above, row, size);
    case 3:
      return Unfilter<3>(above, row, size);
    case 4:
      return Unfilter<4>(above, row, size);
    case 6:
      return Unfilter<6>(above, row, size);
    default:
      return Unfilter<8>(above, row, size);
  }
}

}  // namespace

PngRows::~PngRows() {
  if (has_stream_) inflateEnd(&stream_);
}

void PngRows::Warn(const char* text) {
  if (warning_.empty()) warning_ = text;
}

absl::Status PngRows::Start(absl::Span<const uint8_t> chunks, std::optional<uint32_t> sequence, const Layout& layout) {
  if (!has_stream_ && inflateInit(&stream_) != Z_OK) return absl::ResourceExhaustedError("no memory for zlib");
  has_stream_ = true;
  inflateReset(&stream_);
  stream_.avail_in = 0;
  chunks_ = chunks;
  body_ = {};
  chunk_ = {};
  sequence_ = sequence;
  warning_.clear();
  ended_ = false;
  layout_ = layout;
  left_ = layout.all_bytes;
  const size_t stride = layout.max_row_bytes + 1;
  buffer_.resize(std::max(buffer_.size(), stride + std::max(stride, std::min(kRoomBytes, left_))));
  at_ = filled_ = stride;
  StartPass();
  return absl::OkStatus();
}

void PngRows::StartPass() {
  above_ = 0;
  std::fill_n(buffer_.begin(), layout_.max_row_bytes + 1, uint8_t{0});
}

// False behind the last chunk of image data.
bool PngRows::TakeChunk() {
  if (chunk_.is_whole && checksum_ != PngNumber(chunk_.bytes.end() - 4)) Warn("CRC error in the image data");
  chunk_ = {};
  if (!TakePngChunk(&chunks_, &chunk_)) return false;
  size_t counted = 4;
  if (chunk_.type == "fdAT") {
    if (chunk_.body.size() < 4 || !sequence_.has_value() || PngNumber(chunk_.body.data()) != uint64_t{*sequence_} + 1) return false;
    ++*sequence_;
    counted = 8;
  } else if (chunk_.type != "IDAT" && chunk_.type != "DDAT") {
    chunk_ = {};
    chunks_ = {};
    return false;
  }
  body_ = chunk_.body.subspan(counted - 4);
  checksum_ = crc32_z(0, chunk_.bytes.data() + 4, counted);
  if (!chunk_.is_whole) Warn(kPngCutOff);
  return true;
}

// Gives zlib more bytes.
bool PngRows::TakeBlock() {
  while (body_.empty()) {
    if (!TakeChunk()) return false;
  }
  const absl::Span<const uint8_t> block = body_.first(std::min(body_.size(), kBlockBytes));
  body_.remove_prefix(block.size());
  checksum_ = crc32_z(checksum_, block.data(), block.size());
  stream_.next_in = const_cast<Bytef*>(block.data());
  stream_.avail_in = static_cast<uInt>(block.size());
  block_start_ = stream_.total_out;
  return true;
}

absl::Status PngRows::Inflate() {
  const size_t stride = layout_.max_row_bytes + 1;
  if (at_ > stride) {
    if (above_ > 0) std::memmove(buffer_.data(), buffer_.data() + above_, at_ - above_);
    std::memmove(buffer_.data() + stride, buffer_.data() + at_, filled_ - at_);
    filled_ -= at_ - stride;
    at_ = stride;
    above_ = 0;
  }
  if (stream_.avail_in == 0 && !TakeBlock()) return InvalidPng(kPngCutOff);
  const auto room = static_cast<uInt>(std::min<uint64_t>({buffer_.size() - filled_, left_, std::numeric_limits<uInt>::max()}));
  stream_.next_out = buffer_.data() + filled_;
  stream_.avail_out = room;
  const int code = inflate(&stream_, Z_NO_FLUSH);
  if (code != Z_OK && code != Z_STREAM_END) return InvalidPng(stream_.msg != nullptr ? stream_.msg : "zlib needs a dictionary");
  ended_ = code == Z_STREAM_END;
  filled_ += room - stream_.avail_out;
  left_ -= room - stream_.avail_out;
  return absl::OkStatus();
}

absl::StatusOr<const uint8_t*> PngRows::Next(size_t row_bytes) {
  while (filled_ - at_ <= row_bytes) {
    if (ended_) {
      // Pillow sees the end if it is in the block that holds the end of a row.
      if (filled_ > at_ || stream_.total_out == block_start_) return InvalidPng(kPngCutOff);
      Warn("the image data end early");
      return nullptr;
    }
    HEADRACE_RETURN_IF_ERROR(Inflate());
  }
  uint8_t* const row = buffer_.data() + at_;
  if (!Unfilter(layout_.pixel_bytes, buffer_.data() + above_, row, row_bytes)) return InvalidPng("unknown filter");
  above_ = at_;
  at_ += row_bytes + 1;
  return row + 1;
}

void PngRows::CheckEnd() {
  int code = ended_ ? Z_STREAM_END : Z_OK;
  Bytef more;
  stream_.avail_out = 1;
  while (code == Z_OK && stream_.avail_out > 0 && (stream_.avail_in > 0 || TakeBlock())) {
    stream_.next_out = &more;
    code = inflate(&stream_, Z_NO_FLUSH);
  }
  if (code == Z_OK ? stream_.avail_out == 0 : code == Z_STREAM_END && (stream_.avail_in > 0 || !body_.empty())) {
    Warn("more image data than rows");
  } else if (code != Z_STREAM_END) {
    Warn(stream_.msg != nullptr ? stream_.msg : "the image data have no end");
  }
  while (TakeBlock()) {
  }
}

}  // namespace headrace
