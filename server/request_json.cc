#include "server/request_json.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace headrace {

using Json = nlohmann::json;

absl::StatusOr<Json> ParseRequest(const std::string& body, std::initializer_list<const char*> keys) {
  Json request = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!request.is_object()) return absl::InvalidArgumentError("the request's body is not a JSON object");
  for (const auto& [key, value] : request.items()) {
    const bool known = std::any_of(keys.begin(), keys.end(), [&](std::string_view name) { return name == key; });
    if (!known) return absl::InvalidArgumentError(absl::StrCat("unknown key '", key, "' in the request"));
  }
  return request;
}

absl::StatusOr<std::string> TextOf(const Json& request, const char* key) {
  const auto found = request.find(key);
  if (found == request.end() || !found->is_string()) {
    return absl::InvalidArgumentError(absl::StrCat("the request's '", key, "' must be a text"));
  }
  return found->get<std::string>();
}

absl::StatusOr<uint64_t> NumberOf(const Json& request, const char* key, std::optional<uint64_t> fallback) {
  const auto found = request.find(key);
  if (found == request.end() && fallback) return *fallback;
  if (found == request.end() || !found->is_number_integer() ||
      (!found->is_number_unsigned() && found->get<int64_t>() < 0)) {
    return absl::InvalidArgumentError(absl::StrCat("the request's '", key, "' must be a whole number from 0"));
  }
  return found->get<uint64_t>();
}

std::string Dump(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace headrace
