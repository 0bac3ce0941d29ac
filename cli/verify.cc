#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "packer/verify.h"

namespace headrace {
namespace {

constexpr char kExamples[] = R"(
Examples:
  headrace verify /data/train
      checksums, LMDB against index, then every image is decoded; names each bad sample
  headrace verify --no-decode /data/train
      without decoding: as fast as the disk reads

Exit code 1 if anything is bad. Images that decode with a warning of their library are named, but are not bad.)";

struct Arguments {
  VerifyOptions options;
  bool no_decode = false, quiet = false;
};

ProgressView View(const VerifyProgress& progress) {
  ProgressView view;
  if (progress.samples_total == 0) {
    view.phase = "checksums";
    view.unit = "bytes";
    view.done = progress.shard_bytes;
    view.total = progress.shard_bytes_total;
  } else {
    view.phase = "samples";
    view.unit = "samples";
    view.done = progress.samples;
    view.total = progress.samples_total;
  }
  if (progress.bad > 0) view.note = absl::StrCat(Grouped(progress.bad), " bad");
  return view;
}

int RunVerify(Arguments& arguments) {
  arguments.options.decode = !arguments.no_decode;
  VerifyProgress progress;
  absl::StatusOr<VerifySummary> summary = absl::UnknownError("did not run");
  // Findings go to the output as they come, one line each; the bar on the error stream is drawn anew below them.
  const auto found = [](bool is_bad, const std::string& what) {
    std::printf("%s%s\n", is_bad ? "" : "damaged: ", Printable(what).c_str());
    std::fflush(stdout);
  };
  RunWithProgress([&] { summary = VerifyDataset(arguments.options, &progress, found); },
                  [&] { return View(progress); }, &progress.stop, arguments.quiet);
  if (!summary.ok()) {
    PrintError(summary.status());
    return kExitFailed;
  }
  const bool good = summary->bad_samples + summary->bad_shards == 0;
  std::printf("%s: %s samples in %llu shards: %s bad shards, %s bad samples, %s damaged images\n",
              good ? "good" : "BAD", Grouped(summary->samples).c_str(),
              static_cast<unsigned long long>(summary->shards), Grouped(summary->bad_shards).c_str(),
              Grouped(summary->bad_samples).c_str(), Grouped(summary->damaged).c_str());
  return good ? kExitDone : kExitFailed;
}

}  // namespace

void AddVerify(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("verify", "Check a dataset: checksums, index, and every image");
  const auto arguments = std::make_shared<Arguments>();
  command->footer(kExamples);
  command->add_option("dataset", arguments->options.dataset, "The dataset's folder")->required();
  command->add_option("--threads", arguments->options.threads, "Threads (default: one per core)")
      ->check(CLI::Range(1, 1024));
  command->add_flag("--no-decode", arguments->no_decode, "Leave the decoding out");
  command->add_flag("--quiet", arguments->quiet, "No progress");
  command->callback([arguments, exit_code] { *exit_code = RunVerify(*arguments); });
}

}  // namespace headrace
