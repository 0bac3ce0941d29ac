// `headrace unpack`: a dataset's files back, byte for byte.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "core/base/status.h"

namespace headrace {

// Written meanwhile, to be shown by another thread.
struct UnpackProgress {
  std::atomic<uint64_t> samples{0}, samples_total{0}, bytes{0};
  std::atomic<bool> stop{false};
};

struct UnpackSummary {
  uint64_t files = 0, bytes = 0;
  uint64_t present = 0;  // lay there already with the same bytes (an earlier run, or a list that repeats a path)
  uint64_t renamed = 0;  // absolute names and names with "..", which would have left `out`
  uint64_t transcoded = 0;  // of all: their bytes are not those that were packed, their pixels are
  uint64_t failed = 0;
};

// Where below the output folder a sample's file goes: without leading slashes, "." and "..". "" if nothing is left.
std::string SafeName(const std::string& name);

// Writes each sample's image to `out`/SafeName(name); makes missing folders. Never follows a link below `out`, never
// replaces a file: one that is there with other bytes is a failure. `failed` is called for each failure with what and why,
// `transcoded` with the name below `out` of each image that was transcoded while packing.
// Hashes are checked. An error means that it ended early: the dataset does not open, the disk is full, or CANCELLED.
absl::StatusOr<UnpackSummary> UnpackDataset(const std::string& dataset, const std::string& out, UnpackProgress* progress,
                                            const std::function<void(const std::string&)>& failed,
                                            const std::function<void(const std::string&)>& transcoded);

}  // namespace headrace
