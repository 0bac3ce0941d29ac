// What the items of an AVIF file hold.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/status.h"
#include "core/decode/avif/avif_boxes.h"
#include "core/decode/avif/avif_container.h"

namespace headrace::avif {

// The first `wanted` bytes of an item.
absl::StatusOr<std::vector<Bytes>> PiecesOf(const File& file, const Meta& meta, const Item& item, uint64_t wanted);
absl::StatusOr<std::vector<uint8_t>> ContentOf(const File& file, const Meta& meta, const Item& item);

// The parts of a derived picture in order; nulls if there are more or fewer than `count`.
std::vector<const Item*> PartsOf(const Meta& meta, uint32_t id, size_t count);

// Columns, rows and size of a grid out of its item's content. The size is not checked.
absl::Status ParseGrid(Bytes content, AvifPlanes* planes);

// Of properties that count once.
absl::Status CheckColours(const Properties& properties);

// INVALID_ARGUMENT if libavif refuses the picture for its gain map, which it looks at and does not decode.
absl::Status CheckGainMap(const File& file, const Item& colour);

}  // namespace headrace::avif
