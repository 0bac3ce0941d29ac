// Runs a check on every SIMD target that this CPU has.
#pragma once

#include <functional>
#include <string>

namespace headrace {

// `check` gets the target's name. Afterwards the best target is chosen again.
void OnEveryTarget(const std::function<void(const std::string& target)>& check);

}  // namespace headrace
