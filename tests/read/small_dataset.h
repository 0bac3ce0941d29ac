// Datasets of a few samples, for tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace headrace::testing {

struct SmallSample {
  std::vector<uint8_t> image;  // a file that ProbeImage accepts
  int64_t label = 0;
  std::string name;
};

// Writes a dataset with the fields image, label and name into the existing folder `dir`, at most
// `samples_per_shard` a shard.
absl::Status WriteSmallDataset(const std::string& dir, const std::vector<SmallSample>& samples,
                               size_t samples_per_shard);

}  // namespace headrace::testing
