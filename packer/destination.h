// The folder a dataset is packed into: what lies there before, and what a new run may remove.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/status.h"

namespace headrace {

// Makes `dir` and its missing parents.
absl::Status MakeFolders(const std::string& dir);

bool HasManifest(const std::string& dir);
bool HasJournal(const std::string& dir);
bool HasShards(const std::string& dir);

// Removes shards (.lmdb, .index, .tmp) with numbers from `first_shard` on. Other files stay.
absl::Status RemoveShards(const std::string& dir, uint32_t first_shard);
// Removes a whole dataset, its description first, so that it never opens half removed. Other files stay.
absl::Status RemoveDataset(const std::string& dir);

}  // namespace headrace
