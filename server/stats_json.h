#pragma once

#include <string>

#include "server/service.h"

namespace headrace {

// The answer to STATS (docs/protocol.md).
std::string FormatStatsJson(const ServiceStats& stats);

}  // namespace headrace
