// The rows of a PNG file's image data, as Pillow 13 reads them.
#pragma once

#include <zlib.h>

#include <optional>
#include <string>
#include <vector>

#include "core/decode/png/png_header.h"

namespace headrace {

// Keeps its memory from file to file; not thread-safe. Bytes of the image data are looked at 64 KiB at a time, in no block more than
// one chunk, and none behind the block with the last row: so damage there is noticed where Pillow notices it.
class PngRows {
 public:
  PngRows() = default;
  ~PngRows();
  PngRows(const PngRows&) = delete;
  PngRows& operator=(const PngRows&) = delete;

  struct Layout {
    size_t pixel_bytes;    // 1 … 8; 1 where several pixels share one
    size_t max_row_bytes;  // of the samples, without the filter's byte
    uint64_t all_bytes;    // of all rows that will be asked for, with it
  };
  // `chunks`: the file from the first chunk of image data on, which must outlive the reading; `sequence`: of the last
  // fcTL or fdAT in front of it.
  absl::Status Start(absl::Span<const uint8_t> chunks, std::optional<uint32_t> sequence, const Layout& layout);
  // The next row has none above it.
  void StartPass();
  // The samples of the next row, valid until the next call; null if zlib's data come to an orderly end in front of it.
  // INVALID_ARGUMENT where Pillow raises.
  absl::StatusOr<const uint8_t*> Next(size_t row_bytes);
  // After the last row of the picture: looks at what Pillow does not look at.
  void CheckEnd();

  // The first damage that does not matter to Pillow, or "".
  const std::string& warning() const { return warning_; }
  void Warn(const char* text);

 private:
  bool TakeChunk();
  bool TakeBlock();
  absl::Status Inflate();

  absl::Span<const uint8_t> chunks_, body_;  // what is left of the file, and of the chunk
  PngChunk chunk_;
  uLong checksum_ = 0;  // of what was taken of the chunk
  std::optional<uint32_t> sequence_;
  std::string warning_;

  z_stream stream_ = {};
  bool has_stream_ = false, ended_ = false;
  uLong block_start_ = 0;    // bytes that had been inflated when the block was taken
  uint64_t left_ = 0;        // bytes to inflate
  Layout layout_ = {};
  std::vector<uint8_t> buffer_;             // room for the row above, then rows as they are inflated
  size_t above_ = 0, at_ = 0, filled_ = 0;  // in it: the row above, the next one, the end of what was inflated
};

}  // namespace headrace
