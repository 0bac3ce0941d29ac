#include "server/request_json.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace headrace {

using Json = nlohmann::json;

absl::StatusOr<Json> ParseObject(const std::string& text, const std::string& what) {
  constexpr int kMaxDepth = 32;
  // Copies and texts of a value take a stack frame for each level: a request of brackets alone would end the daemon.
  bool too_deep = false;
  const auto is_shallow = [&](int depth, Json::parse_event_t, const Json&) { return !(too_deep |= depth > kMaxDepth); };
  Json object = Json::parse(text, is_shallow, /*allow_exceptions=*/false);
  if (too_deep) return absl::InvalidArgumentError(absl::StrCat(what, " is nested more than ", kMaxDepth, " levels deep"));
  if (!object.is_object()) return absl::InvalidArgumentError(what + " is not a JSON object");
  return object;
}

absl::StatusOr<Json> ParseRequest(const std::string& body, std::initializer_list<const char*> keys) {
  HEADRACE_ASSIGN_OR_RETURN(Json request, ParseObject(body, "the request's body"));
  for (const auto& [key, value] : request.items()) {
    const bool known = std::any_of(keys.begin(), keys.end(), [&key = key](std::string_view name) { return name == key; });
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

absl::StatusOr<bool> FlagOf(const Json& request, const char* key) {
  const auto found = request.find(key);
  if (found == request.end()) return false;
  if (!found->is_boolean()) return absl::InvalidArgumentError(absl::StrCat("the request's '", key, "' must be true or false"));
  return found->get<bool>();
}

std::string Dump(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace headrace
