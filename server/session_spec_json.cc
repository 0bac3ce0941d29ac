#include "server/session_spec_json.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/request_json.h"

namespace headrace {
namespace {

using Json = nlohmann::json;

absl::Status Wrong(const std::string& key, const Json& value, const std::string& expected) {
  std::string shown = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (shown.size() > 100) shown = shown.substr(0, 100) + "…";
  return absl::InvalidArgumentError(absl::StrCat(key, " = ", shown, ": must be ", expected));
}

template <typename Integer>
absl::Status Read(const std::string& key, const Json& value, Integer low, Integer high, Integer* out) {
  const std::string expected = absl::StrCat("a whole number, ", low, " … ", high);
  if (!value.is_number_integer()) return Wrong(key, value, expected);
  const bool negative = !value.is_number_unsigned() && value.get<int64_t>() < 0;
  if (negative) return Wrong(key, value, expected);
  const uint64_t number = value.get<uint64_t>();
  if (number < static_cast<uint64_t>(low) || number > static_cast<uint64_t>(high)) return Wrong(key, value, expected);
  *out = static_cast<Integer>(number);
  return absl::OkStatus();
}

template <typename Enum>
absl::Status Read(const std::string& key, const Json& value, const std::vector<std::pair<Json, Enum>>& choices,
                  Enum* out) {
  for (const auto& [json, choice] : choices) {
    if (value != json) continue;
    *out = choice;
    return absl::OkStatus();
  }
  const std::string names = absl::StrJoin(choices, ", ", [](std::string* text, const auto& choice) {
    absl::StrAppend(text, choice.first.dump());
  });
  return Wrong(key, value, absl::StrCat("one of ", names));
}

absl::Status ReadFields(const Json& value, std::vector<std::string>* fields) {
  if (!value.is_array() || value.empty()) return Wrong("fields", value, "a list of names");
  fields->clear();
  for (const Json& name : value) {
    if (!name.is_string()) return Wrong("fields", value, "a list of names");
    fields->push_back(name.get<std::string>());
  }
  return absl::OkStatus();
}

bool IsIdentity(const std::string& text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

absl::Status ReadKey(const std::string& key, const Json& value, SessionSpec* spec, std::string* dataset, Json* recipe) {
  constexpr int kMaxRanks = 1 << 20;
  if (key == "dataset") {
    if (!value.is_string()) return Wrong(key, value, "a path");
    *dataset = value.get<std::string>();
    return absl::OkStatus();
  }
  if (key == "fields") return ReadFields(value, &spec->fields);
  if (key == "batch_size") return Read(key, value, 1, 65536, &spec->batch_size);
  if (key == "rank") return Read(key, value, 0, kMaxRanks - 1, &spec->rank);
  if (key == "world_size") return Read(key, value, 1, kMaxRanks, &spec->world_size);
  if (key == "seed") return Read<uint64_t>(key, value, 0, std::numeric_limits<uint64_t>::max(), &spec->seed);
  if (key == "prefetch_factor") return Read(key, value, 1, 62, &spec->prefetch_factor);
  if (key == "num_workers") {
    spec->max_threads = 0;
    return value.is_null() ? absl::OkStatus() : Read(key, value, 0, 1024, &spec->max_threads);
  }
  if (key == "numa_node") return Read(key, value, 0, 1023, &spec->numa_node);
  if (key == "shuffle") {
    return Read<Shuffle>(key, value,
                         {{false, Shuffle::kNone}, {true, Shuffle::kGlobal}, {"blocks", Shuffle::kBlocks}},
                         &spec->shuffle);
  }
  if (key == "last_batch") {
    return Read<LastBatch>(key, value,
                           {{"partial", LastBatch::kPartial}, {"pad", LastBatch::kPad}, {"drop", LastBatch::kDrop}},
                           &spec->last_batch);
  }
  if (key == "on_bad_sample") {
    return Read<OnBadSample>(
        key, value,
        {{"fail", OnBadSample::kFail}, {"skip", OnBadSample::kSkip}, {"substitute", OnBadSample::kSubstitute}},
        &spec->on_bad_sample);
  }
  if (key == "max_bad") {
    spec->max_bad = -1;
    return value.is_null() ? absl::OkStatus() : Read<int64_t>(key, value, 0, kMaxBad, &spec->max_bad);
  }
  if (key == "engine") {
    return Read<Engine>(key, value, {{"auto", Engine::kAuto}, {"cpu", Engine::kCpu}, {"gpu", Engine::kGpu}}, &spec->engine);
  }
  if (key == "gpu") {
    if (!value.is_string() || !IsIdentity(value.get<std::string>())) return Wrong(key, value, "32 hex digits: CUDA's identity of a GPU");
    spec->gpu = value.get<std::string>();
    return absl::OkStatus();
  }
  if (key == "transform" || key == "dtype" || key == "memory_format") {
    (*recipe)[key] = value;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown key '", key, "' in the session's spec"));
}

}  // namespace

absl::StatusOr<SessionSpec> ParseSessionSpec(const std::string& json, const OpenDataset& open) {
  HEADRACE_ASSIGN_OR_RETURN(const Json parsed, ParseObject(json, "the session's spec"));
  SessionSpec spec;
  std::string dataset;
  Json recipe = Json::object();
  for (const auto& [key, value] : parsed.items()) {
    HEADRACE_RETURN_IF_ERROR(ReadKey(key, value, &spec, &dataset, &recipe));
  }
  for (const char* required : {"dataset", "batch_size"}) {
    if (!parsed.contains(required)) {
      return absl::InvalidArgumentError(absl::StrCat("the session's spec has no '", required, "'"));
    }
  }
  HEADRACE_ASSIGN_OR_RETURN(spec.recipe, ParseRecipe(recipe.dump(-1, ' ', false, Json::error_handler_t::replace)));
  HEADRACE_ASSIGN_OR_RETURN(spec.dataset, open(dataset));
  HEADRACE_RETURN_IF_ERROR(spec.Validate());
  return spec;
}

}  // namespace headrace
