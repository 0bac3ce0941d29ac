// The JSON bodies of requests: objects with known keys.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "core/base/status.h"

namespace headrace {

// INVALID_ARGUMENT unless `text` is an object of few levels; `what` names it in messages.
absl::StatusOr<nlohmann::json> ParseObject(const std::string& text, const std::string& what);

// INVALID_ARGUMENT unless `body` is an object with no other keys than these.
absl::StatusOr<nlohmann::json> ParseRequest(const std::string& body, std::initializer_list<const char*> keys);

// INVALID_ARGUMENT naming the key if it is missing (without a fallback) or has another type.
absl::StatusOr<std::string> TextOf(const nlohmann::json& request, const char* key);
absl::StatusOr<uint64_t> NumberOf(const nlohmann::json& request, const char* key,
                                  std::optional<uint64_t> fallback = std::nullopt);

// False unless it is there.
absl::StatusOr<bool> FlagOf(const nlohmann::json& request, const char* key);

// Text that may come from file names: bytes that are not UTF-8 are replaced.
std::string Dump(const nlohmann::json& value);

}  // namespace headrace
