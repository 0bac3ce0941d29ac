#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "packer/list_bad.h"

namespace headrace {
namespace {

constexpr char kExamples[] = R"(
Examples:
  headrace bad /data/train
      the samples known to be bad or damaged: shard, sample, name, verdict, reason
  headrace bad --json /data/train
      one JSON object a line

bad: it cannot be decoded, as a daemon found while serving. damaged: it decodes with a warning of its library, as
`headrace pack --check` found. `headrace verify` looks for what nobody has met yet. Exit code 0 whether there are any or not.)";

struct Arguments {
  std::string dataset;
  bool json = false;
};

const char* Verdict(const ListedSample& listed) { return listed.is_bad ? "bad" : "damaged"; }

void PrintJson(const BadList& list) {
  for (const ListedSample& listed : list.listed) {
    const nlohmann::ordered_json row = {{"shard", listed.shard}, {"sample", listed.sample}, {"name", listed.name},
                                        {"verdict", Verdict(listed)}, {"reason", listed.reason}};
    std::printf("%s\n", row.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
  }
}

void PrintTable(const std::string& dataset, const BadList& list) {
  int width = 4;
  for (const ListedSample& listed : list.listed) width = std::clamp<int>(static_cast<int>(listed.name.size()), width, 60);
  if (!list.listed.empty()) std::printf("%6s %12s  %-*s  %-7s  %s\n", "SHARD", "SAMPLE", width, "NAME", "VERDICT", "REASON");
  for (const ListedSample& listed : list.listed) {
    std::printf("%6u %12llu  %-*s  %-7s  %s\n", listed.shard, static_cast<unsigned long long>(listed.sample), width,
                Printable(listed.name).c_str(), Verdict(listed), Printable(listed.reason).c_str());
  }
  uint64_t bad = 0;
  for (const ListedSample& listed : list.listed) bad += listed.is_bad;
  std::printf("%s samples: %s known to be bad, %s damaged%s\n", Grouped(list.samples).c_str(), Grouped(bad).c_str(),
              Grouped(list.listed.size() - bad).c_str(), list.was_checked ? "" : " (packed without --check: not all were looked at)");
  if (list.rejected > 0) {
    std::printf("%s files were rejected while packing and are no samples: %s/report.csv names them\n",
                Grouped(list.rejected).c_str(), Printable(dataset).c_str());
  }
}

int RunBad(const Arguments& arguments) {
  const absl::StatusOr<BadList> list = ListBadSamples(arguments.dataset);
  if (!list.ok()) {
    PrintError(list.status());
    return kExitFailed;
  }
  if (!list->problem.empty()) {
    std::fprintf(stderr, "headrace: what a daemon noted is left out: %s\n", Printable(list->problem).c_str());
  }
  arguments.json ? PrintJson(*list) : PrintTable(arguments.dataset, *list);
  return kExitDone;
}

}  // namespace

void AddBad(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("bad", "List the samples known to be bad or damaged");
  const auto arguments = std::make_shared<Arguments>();
  command->footer(kExamples);
  command->add_option("dataset", arguments->dataset, "The dataset's folder")->required();
  command->add_flag("--json", arguments->json, "One JSON object a line");
  command->callback([arguments, exit_code] { *exit_code = RunBad(*arguments); });
}

}  // namespace headrace
