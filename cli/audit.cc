#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "core/batch/audit.h"
#include "server/session_spec_json.h"

namespace headrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kExamples[] = R"help(
Examples:
  headrace audit /data/train --batch-size 256 --shuffle --seed 0 --epoch 3 --step 10
      which samples the step holds, and the crop and flip drawn for each: what loader.audit(10, epoch=3) gives
  headrace audit /data/train --batch-size 256 --rank 1 --world-size 8 --transform val224
  headrace audit /data/train --batch-size 64 --transform '[{"name": "RandomCrop", "size": 32, "padding": 4}]'
  headrace audit /data/train --spec "$(cat spec.json)" --step 10
      a whole session's spec, as docs/protocol.md describes it

--transform: train224 (RandomResizedCrop 224, flip, normalise), val224 (Resize 256, CenterCrop 224, normalise), or a JSON
list. Prints a JSON list with one object per sample.)help";

constexpr char kTrain224[] =
    R"([{"name": "RandomResizedCrop", "size": 224}, {"name": "RandomHorizontalFlip"}, {"name": "Normalize"}])";
constexpr char kVal224[] =
    R"([{"name": "Resize", "size": 256}, {"name": "CenterCrop", "size": 224}, {"name": "Normalize"}])";

struct Arguments {
  std::string dataset, spec, transform = "train224", last_batch;
  int batch_size = 1, rank = 0, world_size = 1;
  uint64_t seed = 0, epoch = 0, position = 0, step = 0;
  bool shuffle = false;
  std::vector<std::string> spec_options;  // given on the command line, and part of the spec
};

absl::StatusOr<std::string> SpecJson(const Arguments& arguments) {
  Json spec;
  if (!arguments.spec.empty()) {
    if (!arguments.spec_options.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(arguments.spec_options[0], " is a part of --spec; give one of them"));
    }
    spec = Json::parse(arguments.spec, nullptr, /*allow_exceptions=*/false);
    if (!spec.is_object()) return absl::InvalidArgumentError("--spec is no JSON object");
  } else {
    const std::string& name = arguments.transform;
    const Json transform =
        Json::parse(name == "train224" ? kTrain224 : name == "val224" ? kVal224 : name, nullptr, false);
    if (!transform.is_array()) {
      return absl::InvalidArgumentError("--transform is neither train224 nor val224 nor a JSON list");
    }
    spec = {{"batch_size", arguments.batch_size}, {"rank", arguments.rank},       {"world_size", arguments.world_size},
            {"seed", arguments.seed},             {"shuffle", arguments.shuffle}, {"transform", transform}};
    // DataLoader's default: no sample twice on one rank, equal steps on several.
    spec["last_batch"] = !arguments.last_batch.empty() ? arguments.last_batch
                         : arguments.world_size == 1   ? "partial"
                                                       : "pad";
    const auto dataset = Dataset::Open(arguments.dataset);
    HEADRACE_RETURN_IF_ERROR(dataset.status());
    spec["fields"] = (*dataset)->FindField("label") < 0 ? Json{"image"} : Json{"image", "label"};
  }
  spec["dataset"] = std::filesystem::absolute(arguments.dataset).lexically_normal().string();
  return spec.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<std::string> Audit(const Arguments& arguments) {
  HEADRACE_ASSIGN_OR_RETURN(std::string json, SpecJson(arguments));
  // The path as it was given: JSON cannot hold every path.
  const auto open = [&](const std::string&) { return Dataset::Open(arguments.dataset); };
  HEADRACE_ASSIGN_OR_RETURN(SessionSpec spec, ParseSessionSpec(json, open));
  if (arguments.position > spec.dataset->size()) {
    return absl::InvalidArgumentError(absl::StrCat("--position is beyond the ", spec.dataset->size(), " samples"));
  }
  return AuditStep(spec, {arguments.epoch, arguments.position}, arguments.step);
}

int RunAudit(const Arguments& arguments) {
  const absl::StatusOr<std::string> answer = Audit(arguments);
  if (!answer.ok()) {
    PrintError(answer.status());
    return kExitFailed;
  }
  // One object a line: still JSON, and people and grep can read it.
  const Json entries = Json::parse(*answer, nullptr, false);
  std::printf("[");
  for (size_t i = 0; i < entries.size(); ++i) std::printf("%s%s", i > 0 ? ",\n " : "", entries[i].dump().c_str());
  std::printf("]\n");
  return kExitDone;
}

}  // namespace

void AddAudit(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("audit", "Print which samples a step holds and what was drawn for each");
  const auto arguments = std::make_shared<Arguments>();
  command->footer(kExamples);
  command->add_option("dataset", arguments->dataset, "The dataset's folder")->required();
  command->add_option("--spec", arguments->spec, "A session's spec")->type_name("JSON");
  const std::vector<CLI::Option*> parts = {
      command->add_option("--batch-size", arguments->batch_size, "Samples per rank and step")->capture_default_str(),
      command->add_flag("--shuffle", arguments->shuffle, "A true permutation of all samples"),
      command->add_option("--seed", arguments->seed)->check(CheckUnsigned)->capture_default_str(),
      command->add_option("--rank", arguments->rank)->capture_default_str(),
      command->add_option("--world-size", arguments->world_size)->capture_default_str(),
      command->add_option("--last-batch", arguments->last_batch, "Default: partial, with several ranks pad")
          ->check(CLI::IsMember({"partial", "pad", "drop"})),
      command->add_option("--transform", arguments->transform)->capture_default_str()->type_name("NAME|JSON")};
  command->add_option("--epoch", arguments->epoch)->check(CheckUnsigned)->capture_default_str();
  command->add_option("--position", arguments->position, "Global samples before the iteration began")
      ->check(CheckUnsigned)->capture_default_str();
  command->add_option("--step", arguments->step, "Counted from --position, as enumerate(loader) does")
      ->check(CheckUnsigned)->capture_default_str();
  command->callback([arguments, parts, exit_code] {
    for (const CLI::Option* part : parts) {
      if (part->count() > 0) arguments->spec_options.push_back(part->get_name());
    }
    *exit_code = RunAudit(*arguments);
  });
}

}  // namespace headrace
