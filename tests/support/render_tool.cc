#include "tests/support/render_tool.h"

#include <fcntl.h>

#include <cerrno>
#include <exception>
#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"

namespace headrace::render_tool {

absl::StatusOr<std::vector<uint8_t>> ReadInput(const nlohmann::json& request) {
  constexpr uint64_t kMaxBytes = uint64_t{1} << 30;
  HEADRACE_ASSIGN_OR_RETURN(const std::string content,
                            ReadFile(request.at("file").get<std::string>(), kMaxBytes));
  return std::vector<uint8_t>(content.begin(), content.end());
}

absl::Status WriteOutput(const nlohmann::json& request, const void* data, size_t size) {
  const std::string path = request.at("out").get<std::string>();
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("cannot open ", path));
  return WriteAll(fd.get(), data, size, path);
}

namespace {

nlohmann::json Answer(const CommandTable& table, const std::string& line) {
  absl::StatusOr<nlohmann::json> result = absl::InternalError("no result");
  // The JSON library throws when a request lacks a key or has another type there.
  try {
    const nlohmann::json request = nlohmann::json::parse(line);
    const auto command = table.find(request.at("cmd").get<std::string>());
    result =
        command == table.end() ? absl::NotFoundError("no such command") : command->second(request);
  } catch (const std::exception& error) {
    result = absl::InvalidArgumentError(absl::StrCat("bad request: ", std::string(error.what())));
  }
  if (!result.ok()) return {{"ok", false}, {"error", std::string(result.status().message())}};
  nlohmann::json answer = *std::move(result);
  answer["ok"] = true;
  return answer;
}

}  // namespace
}  // namespace headrace::render_tool

int main() {
  using namespace headrace::render_tool;
  CommandTable table;
  AddDecodeCommands(&table);
  AddRenderCommands(&table);
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << Answer(table, line).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
              << std::endl;
  }
  return 0;
}
