// The JSON of a session's spec (docs/protocol.md) as a SessionSpec.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/batch/session_spec.h"

namespace headrace {

// Opens the dataset that a spec names by its absolute path; may block.
using OpenDataset = std::function<absl::StatusOr<std::shared_ptr<const Dataset>>(const std::string& path)>;

// Absent keys have the defaults of docs/protocol.md. Unknown keys, wrong types and values out of range are
// INVALID_ARGUMENT and name the key; the dataset is opened last. The result has passed SessionSpec::Validate.
absl::StatusOr<SessionSpec> ParseSessionSpec(const std::string& json, const OpenDataset& open);

}  // namespace headrace
