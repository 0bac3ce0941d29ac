// What the kernels of one batch read: plain data, the same on the host and on the GPU (core/augment/gpu/kernels.h). Internal to core/augment/gpu.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/decode/entry/jpeg_color.h"
#include "core/decode/segment/upsampling.h"

namespace headrace::gpu {

inline constexpr int kLookupBits = 10;
inline constexpr int kMaxComponents = 4;
inline constexpr int kMaxTables = 8;  // of one image: four for DC, four for AC
inline constexpr int kMaxBlocksPerMcu = 10;

// A Huffman table as DHT gives it.
struct HuffmanSymbols {
  uint8_t counts[16];
  uint8_t symbols[256];
};
static_assert(sizeof(HuffmanSymbols) % 4 == 0);
// As in core/decode/entry/code_limits.h.
struct HuffmanCodes {
  uint32_t limit[17];
  int32_t offset[17];
  uint8_t symbols[256];
};
// With, by the next kLookupBits bits: length of the code << 8 | symbol; 0: a longer code.
struct HuffmanTable {
  uint16_t lookup[1 << kLookupBits];
  HuffmanCodes codes;
};
static_assert(sizeof(HuffmanTable) % 4 == 0);

struct Component {
  uint8_t h, v;                  // sampling factors
  uint8_t dc, ac;                // numbers among the image's tables
  Upsampling upsampling;
  uint8_t h_expand, v_expand;
  uint8_t reserved;
  uint32_t quant;                // number among the burst's
  int32_t width, height;         // of the component, in samples
  uint32_t coefficients;         // its first block
  uint32_t blocks_per_row, blocks;
  int32_t first_column, first_line;  // of its samples: those of the first MCU that is held
  uint64_t plane;                // offset among the samples
  uint32_t stride;
};

// Whose weights of an axis the GPU makes (core/augment/filter_math.h); those of the others are brought.
enum class AxisKernel : uint32_t { kBrought, kBox, kBilinear, kBicubic };

// One pass of a resize, or none: out[i] = Σ weights[i · taps + t] · in[start[i] + t], in 22 bits.
struct Axis {
  uint32_t outputs, taps;  // taps 0: nothing changes along this axis
  uint32_t start;          // offset among the burst's numbers that came the same way, `outputs` of them
  uint32_t weights;        // likewise, outputs · taps
  int32_t origin;          // what `start` counts from: the input that is held first
  AxisKernel kernel;
  int32_t in, out, first;  // for the kernel: from `in` to `out` samples, the outputs from `first` on
};

struct Image {
  uint64_t bytes;                  // its bytes' offset among those that were staged, or their address
  uint32_t num_components;
  JpegColor color;
  uint32_t num_tables, tables[kMaxTables];  // numbers among the burst's
  Component components[kMaxComponents];
  uint32_t first_run, num_runs, num_blocks;
  uint32_t restart_interval, mcus_per_row, mcu_rows;
  uint32_t first_mcu, first_row, last_mcu;  // held
  // Its entry points: as in the index, whole rows, all that are held and one word more.
  uint32_t entries, rows;          // offsets among the burst's words of entries, and its rows
  uint32_t words_per_entry, interval, segments_per_row, first_segment, runs_per_row;
  uint32_t scan_bytes;             // to the marker behind it
  uint32_t max_run_bytes;          // of a whole segment's MCUs, at most
  uint32_t end, end_bytes;         // of its bytes those in which it must end; 0 bytes: its last row is not needed
  // The part of the oriented image that is needed, and how the oriented image lies in the stored one.
  int32_t top, left, height, width;
  int32_t stored_height, stored_width;
  uint8_t flip_rows, flip_columns, transpose;
  uint8_t vertical_first, mirrored, upside_down;
  uint8_t is_mapped;               // its bytes lie in a pinned file
  uint8_t over_coefficients;       // its pixels lie where its coefficients were, which nobody needs any more
  uint64_t pixels, between;        // offsets among the samples or there: three planes each, before and between the passes
  uint32_t pixel_stride, between_stride, between_height;
  Axis horizontal, vertical;
  uint32_t sample;                 // its place in the batch
};

// A row of an image's MCUs. Bytes are of its entropy-coded data.
struct Row {
  uint32_t begin, end;             // that its runs need
  uint32_t base, next_base;        // what the entries of this row and the next one count from
  uint32_t words;                  // where its bytes go without what is stuffed: number among the burst's words
};

// A share of an image's work for one block of threads.
struct Chunk {
  uint32_t image, first;
};

inline constexpr uint32_t kRunsPerChunk = 64, kBlocksPerChunk = 128, kFoursPerChunk = 512;

// The images of a burst whose longest segment is long, and the others in two halves: a group's kernels run beside the others', so that
// the few threads with the longest segments keep nobody waiting but their own images, and one half's bytes are fetched while the
// other's are decoded.
inline constexpr size_t kGroups = 3;
// What a group's kernels do.
enum Task { kEntropy, kBlocks, kPixels, kFirstPass, kLastPass, kTasks };
struct Chunks {
  const Chunk* chunks;
  uint32_t size;
};

enum class Element : uint32_t { kUInt8, kBits16, kFloat32 };

// What a recipe says of the batch.
struct Output {
  Element element;
  uint32_t channels_last;
  uint32_t height, width;
};

// All pointers are the GPU's, or all the host's.
struct Burst {
  const uint8_t* staged;           // images' bytes, in the host's memory like those in pinned files: each is read once
  const Image* images;
  const Row* rows;
  const uint64_t* entries;
  const HuffmanSymbols* specs;
  const uint16_t* quant;           // 64 each, in natural order
  int32_t* numbers[2];             // of axes: brought, and made
  uint8_t natural[64];             // zigzag index → natural index
  Chunks chunks[kGroups][kTasks];
  uint64_t num_blocks;
  HuffmanTable* tables;            // made of them
  uint32_t num_tables, most_tables;  // of all images, and of one at most
  uint32_t* words;                 // the segments without stuffed zeros
  uint32_t* lengths;               // by run: its bytes there; UINT32_MAX: there is a marker inside
  int16_t* coefficients;
  uint8_t* samples;
  uint8_t* failed;                 // by image: 1 when its data contradicts its entry points; in the host's memory
  uint32_t num_images;
  void* out;                       // the batch's elements
  const uint32_t* values;          // the element of every byte, per channel: [3][256]
  Output output;
};

}  // namespace headrace::gpu
