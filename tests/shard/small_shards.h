// Datasets of made-up bytes, written with core/shard alone.
#pragma once

#include <absl/types/span.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/shard/dataset.h"
#include "core/shard/manifest.h"

namespace headrace::testing {

inline absl::Span<const uint8_t> AsBytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// The fields `image`, `label`, `name`, `score`.
std::vector<Field> SmallFields();

// Sample n's values: pseudo-random bytes whose lengths cover LMDB's ways to store a value (inside a page, just fitting,
// pages of their own), also none at all.
std::string ImageOf(uint64_t sample);
std::string NameOf(uint64_t sample);
inline int64_t LabelOf(uint64_t sample) { return static_cast<int64_t>(sample % 7) - 3; }
inline double ScoreOf(uint64_t sample) { return static_cast<double>(sample) / 8; }

// Writes shard `number` of `dir`: LMDB file and index.
ShardEntry WriteShard(const std::string& dir, uint32_t number, uint64_t first_sample, uint64_t samples);
// Two shards of `samples` each, and dataset.json.
Manifest WriteDataset(const std::string& dir, uint64_t samples);

}  // namespace headrace::testing
