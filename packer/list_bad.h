// `headrace bad`: what is known of a dataset's samples that are not as they should be.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace headrace {

struct ListedSample {
  uint32_t shard = 0;
  uint64_t sample = 0;
  std::string name;
  bool is_bad = false;  // false: damaged, it decodes with a warning of its library
  std::string reason;
};

struct BadList {
  uint64_t samples = 0;   // of the dataset
  uint64_t rejected = 0;  // files that packing left out: they are no samples
  bool was_checked = false;  // packed with --check: the list of damaged samples is complete
  std::string problem;    // a side file that could not be read, and why; ""
  std::vector<ListedSample> listed;  // in order
};

// Reads every row of the index, where damaged samples are flagged (what their library says is found by decoding them again) and
// those without a readable row are bad; and the side files of daemons (core/shard/known_bad.h). Errors: those of Dataset::Open.
absl::StatusOr<BadList> ListBadSamples(const std::string& dataset);

}  // namespace headrace
