#define TOML_EXCEPTIONS 0
#define TOML_ASSERT(condition) static_cast<void>(0)  // 3.3 asserts that "[=" begins no table
#include <toml++/toml.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "server/settings.h"

namespace headrace {
namespace {

constexpr uint64_t kMaxConfigBytes = 1 << 20;

std::optional<std::string> ScalarText(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto number = node.value_exact<int64_t>()) return absl::StrCat(*number);
  if (const auto flag = node.value_exact<bool>()) return *flag ? "true" : "false";
  return std::nullopt;
}

// Values as the settings take them from the command line.
std::optional<std::vector<std::string>> Texts(const toml::node& node, bool is_list) {
  std::vector<std::string> texts;
  if (const toml::array* array = node.as_array(); array != nullptr && is_list) {
    for (const toml::node& element : *array) {
      const std::optional<std::string> text = ScalarText(element);
      if (!text) return std::nullopt;
      texts.push_back(*text);
    }
    return texts;
  }
  const std::optional<std::string> text = ScalarText(node);
  if (!text) return std::nullopt;
  texts.push_back(*text);
  return texts;
}

}  // namespace

absl::Status LoadConfigFile(const std::string& path, bool only_changeable, Settings* settings) {
  HEADRACE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  const toml::parse_result parsed = toml::parse(text, path);
  if (!parsed) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ", line ", parsed.error().source().begin.line, ": ", std::string(parsed.error().description())));
  }
  Settings scratch = *settings;  // for values that are only checked
  for (const auto& [key, node] : parsed.table()) {
    const std::string name(key.str());
    const std::string where = absl::StrCat(path, ", line ", key.source().begin.line);
    const Setting* setting = FindSetting(name);
    if (setting == nullptr || !setting->in_file) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, ": unknown key '", name, "'; keys are the options of `headrace serve --help` with _ for -, such as host_memory"));
    }
    const auto values = Texts(node, setting->is_list);
    if (!values) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": ", name, " must be ", setting->range));
    }
    Settings* target = only_changeable && !setting->changeable ? &scratch : settings;
    HEADRACE_RETURN_IF_ERROR(Annotate(setting->set(*values, target), where));
  }
  return absl::OkStatus();
}

}  // namespace headrace
