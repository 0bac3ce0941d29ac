// The header of a JPEG that can have entry points: one frame, one interleaved Huffman-coded scan (ITU-T T.81, baseline and
// extended sequential, 8 bits).
#pragma once

#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/decode/entry/jpeg_color.h"

namespace headrace {

// A Huffman table as DHT gives it: counts[l] codes of l + 1 bits, then their symbols in the order of the codes.
struct HuffmanSpec {
  std::array<uint8_t, 16> counts = {};
  std::array<uint8_t, 256> symbols = {};
  uint16_t num_symbols = 0;
  friend bool operator==(const HuffmanSpec&, const HuffmanSpec&) = default;
};

// Whether libjpeg accepts the table: codes fit 16 bits without overlap, the all-ones code is free, and DC sizes are at most
// 15. An AC symbol of size 0 and run below 15 ends the block, as in libjpeg.
bool IsUsableHuffmanSpec(const HuffmanSpec& spec, bool dc);

struct JpegComponent {
  uint8_t h = 1, v = 1;  // sampling factors, 1 … 4
  uint8_t quant = 0, dc = 0, ac = 0;  // indices of its tables
  friend bool operator==(const JpegComponent&, const JpegComponent&) = default;
};

// The tables that an image uses; many images of a shard share them.
struct JpegTables {
  uint8_t quant_mask = 0, dc_mask = 0, ac_mask = 0;  // which tables are defined and used
  std::array<std::array<uint16_t, 64>, 4> quant = {};  // natural (row-major) order
  std::array<HuffmanSpec, 4> dc, ac;
};

// What a header says beside its tables.
struct JpegShape {
  uint16_t width = 0, height = 0;  // px
  uint8_t num_components = 0;      // 1, 3 or 4
  JpegColor color = JpegColor::kYCbCr;
  std::array<JpegComponent, 4> components;
  uint32_t restart_interval = 0;  // MCUs; 0: none
  uint32_t scan_offset = 0;       // of the entropy-coded data, in the file

  int max_h() const;
  int max_v() const;
  int blocks_per_mcu() const;
  int mcus_per_row() const { return (width + 8 * max_h() - 1) / (8 * max_h()); }
  int mcu_rows() const { return (height + 8 * max_v() - 1) / (8 * max_v()); }
};

struct JpegFrame : JpegShape, JpegTables {
  JpegFrame() = default;
  JpegFrame(const JpegShape& shape) : JpegShape(shape) {}  // NOLINT: its tables follow
};

// Parses markers up to and including SOS. UNIMPLEMENTED with the reason for legal files that cannot have entry points
// (progressive, arithmetic, 12 bits, several scans, DNL); INVALID_ARGUMENT for broken ones. A grey image's sampling
// factors are 1 × 1 whatever the file says, since its one scan is not interleaved (T.81, A.2.2).
absl::StatusOr<JpegFrame> ParseJpegFrame(absl::Span<const uint8_t> file);

// Zigzag index → natural index (T.81, figure 5), with 16 more entries that stay inside the block.
extern const std::array<uint8_t, 80> kNaturalOrder;

}  // namespace headrace
