#pragma once

#include <string>

#include "server/service.h"

namespace headrace {

// "gpu" once a GPU is in use, "cpu" before.
inline const char* EngineName(const PipelineStats& stats) { return stats.gpus.empty() ? "cpu" : "gpu"; }

// The answer to STATS (docs/protocol.md).
std::string FormatStatsJson(const ServiceStats& stats);

}  // namespace headrace
