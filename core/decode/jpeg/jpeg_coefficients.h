// The DCT coefficients of whole JPEG files through libjpeg, for the packer: transcoding without loss, and a reference to
// compare with.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/base/status.h"

namespace headrace {

// Quantised, as the file holds them.
struct JpegCoefficients {
  struct Component {
    int blocks_per_row = 0, rows = 0;  // of blocks; with those that only fill up the last MCUs
    int shown_blocks_per_row = 0, shown_rows = 0;  // without those
    std::vector<int16_t> blocks;       // 64 each, in natural order

    const int16_t* block(int row, int column) const {
      const size_t number = static_cast<size_t>(row) * static_cast<size_t>(blocks_per_row) + static_cast<size_t>(column);
      return blocks.data() + 64 * number;
    }
  };
  std::vector<Component> components;
};

// Of the blocks that are shown. The others never reach a pixel; encoders fill them as they like.
bool HaveSameBlocks(const JpegCoefficients& a, const JpegCoefficients& b);

// One per thread; not thread-safe. libjpeg's memory is that of the coefficients: 2 bytes per sample of each component.
class JpegTranscoder {
 public:
  JpegTranscoder();
  ~JpegTranscoder();

  // Writes `file` anew with the same coefficients as baseline: one scan, Huffman tables made for it; the markers in front of
  // its first scan stay as they are, and one more says what the file was (docs/shard_format.md, "Transcoded images").
  // Returns what it was: "progressive", "arithmetic", "several scans", or more of these; "" and nothing in `out` for a file
  // that is baseline in one scan already, or must stay as it is: its scans leave bits of coefficients open (libjpeg smooths
  // such pictures), libjpeg warns or fails, a marker stands between its scans, one scan cannot hold it, or its coefficients
  // need more than 256 MB. The same bytes give the same bytes with the same libjpeg.
  std::string Transcode(absl::Span<const uint8_t> file, std::vector<uint8_t>* out);

  // All coefficients of `file`. INVALID_ARGUMENT with libjpeg's reason; its warnings too.
  absl::Status Read(absl::Span<const uint8_t> file, JpegCoefficients* out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Whether the body of an APP15 segment is the mark of a transcoded file.
bool IsTranscodingMark(absl::Span<const uint8_t> app15);

}  // namespace headrace
