#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "core/decode/entry/entry_data.h"
#include "packer/rebuild_index.h"

namespace headrace {
namespace {

constexpr char kExamples[] = R"(
Examples:
  headrace index /data/train
      makes the NNNNN.index files anew from the LMDB files, for a lost or damaged index or a newer program
  headrace index /data/train --entry-interval 4
      with an entry point every 4 MCUs: crops are decoded a little faster, the index is twice as large)";

struct Arguments {
  std::string dataset;
  int threads = 0;
  int entry_interval = -1;
  bool quiet = false;
};

int RunIndex(const Arguments& arguments) {
  RebuildProgress progress;
  absl::Status status = absl::UnknownError("did not run");
  const auto view = [&] {
    return ProgressView{"indexing", "samples", progress.samples, progress.samples_total, progress.bytes, ""};
  };
  const auto rebuild = [&] {
    status = RebuildIndex(arguments.dataset, arguments.threads, arguments.entry_interval, &progress);
  };
  RunWithProgress(rebuild, view, &progress.stop, arguments.quiet);
  for (const std::string& warning : progress.warnings) std::fprintf(stderr, "warning: %s\n", warning.c_str());
  if (!status.ok()) {
    PrintError(status);
    return kExitFailed;
  }
  std::printf("indexed %s samples of %s\n", Grouped(progress.samples).c_str(), arguments.dataset.c_str());
  return kExitDone;
}

}  // namespace

void AddIndex(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("index", "Make a dataset's index files anew");
  const auto arguments = std::make_shared<Arguments>();
  command->footer(kExamples);
  command->add_option("dataset", arguments->dataset, "The dataset's folder")->required();
  command->add_option("--threads", arguments->threads, "Shards at a time (default: one per core)")
      ->check(CLI::Range(1, 1024));
  command->add_option("--entry-interval", arguments->entry_interval,
                      "MCUs per entry point; 0: no entry data (default: as when packing)")
      ->check(CLI::Range(0, kMaxEntryInterval));
  command->add_flag("--quiet", arguments->quiet, "No progress");
  command->callback([arguments, exit_code] { *exit_code = RunIndex(*arguments); });
}

}  // namespace headrace
