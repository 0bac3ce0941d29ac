#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "packer/unpack.h"

namespace headrace {
namespace {

constexpr char kExamples[] = R"(
Examples:
  headrace unpack /data/train ~/train
      the files that were packed, under their names below ~/train: byte for byte, but for those that were transcoded

Nothing is replaced, and nothing is written outside OUT: absolute names and names with ".." lose those parts.
Started again, it goes on.)";

struct Arguments {
  std::string dataset, out;
  bool quiet = false;
};

int RunUnpack(const Arguments& arguments) {
  UnpackProgress progress;
  absl::StatusOr<UnpackSummary> summary = absl::UnknownError("did not run");
  const auto view = [&] {
    return ProgressView{"unpacking", "files", progress.samples, progress.samples_total, progress.bytes, ""};
  };
  const auto failed = [](const std::string& what) { PrintError(absl::UnknownError(what)); };
  const auto transcoded = [](const std::string& name) { std::printf("transcoded %s\n", Printable(name).c_str()); };
  RunWithProgress([&] { summary = UnpackDataset(arguments.dataset, arguments.out, &progress, failed, transcoded); }, view,
                  &progress.stop, arguments.quiet);
  if (absl::IsCancelled(summary.status())) {
    std::fprintf(stderr, "headrace: stopped; the same command goes on from here\n");
    return kExitFailed;
  }
  if (!summary.ok()) {
    PrintError(summary.status());
    return kExitFailed;
  }
  std::printf("%s files, %s, written to %s\n", Grouped(summary->files).c_str(), HumanBytes(summary->bytes).c_str(),
              arguments.out.c_str());
  if (summary->present > 0) std::printf("%s were there already\n", Grouped(summary->present).c_str());
  if (summary->transcoded > 0) {
    std::printf("%s (named above) were transcoded while packing: the same pixels in other bytes\n",
                Grouped(summary->transcoded).c_str());
  }
  if (summary->renamed > 0) {
    std::printf("%s had absolute names or names with \"..\" and lie below %s without those parts\n",
                Grouped(summary->renamed).c_str(), arguments.out.c_str());
  }
  if (summary->failed > 0) std::printf("%s FAILED\n", Grouped(summary->failed).c_str());
  return summary->failed == 0 ? kExitDone : kExitFailed;
}

}  // namespace

void AddUnpack(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("unpack", "Write a dataset's images back as files");
  const auto arguments = std::make_shared<Arguments>();
  command->footer(kExamples);
  command->add_option("dataset", arguments->dataset, "The dataset's folder")->required();
  command->add_option("out", arguments->out, "Where the files go")->required();
  command->add_flag("--quiet", arguments->quiet, "No progress");
  command->callback([arguments, exit_code] { *exit_code = RunUnpack(*arguments); });
}

}  // namespace headrace
