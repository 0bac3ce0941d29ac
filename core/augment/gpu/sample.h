// An image on its way to a GPU.
#pragma once

#include <cstdint>

#include "core/augment/draw.h"
#include "core/decode/entry/entry_data.h"
#include "core/shard/dataset.h"

namespace headrace {

struct GpuSample {
  const ImageInfo* info;
  const EntryView* entries;
  const JpegFrame* frame;  // with its tables
  const Draw* draw;
  uint32_t place;  // in the batch
  uint64_t tables_number = 0;  // images of one session that have the same one share their tables (ImageEntries); 0: nobody knows
};

}  // namespace headrace
