#include <signal.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "core/base/byte_size.h"
#include "packer/pack.h"

namespace headrace {
namespace {

constexpr char kExamples[] = R"(
Examples:
  headrace pack ~/imagenet/train /data/train
      every folder in ~/imagenet/train is a class
  headrace pack photos/ /data/photos
      a folder without subfolders: images without labels
  headrace pack --list train.csv /data/train
      train.csv begins with the line "path,label"; further columns become fields

Killed or stopped, the same command goes on where it was. Files that are no readable image are named in
DST/report.csv.)";

struct Arguments {
  PackOptions options;
  std::vector<std::string> paths;
  std::string list;
  std::string shard_size = "1GiB";
  bool quiet = false;
};

ProgressView View(const PackProgress& progress) {
  ProgressView view;
  switch (progress.phase) {
    case PackProgress::Phase::kStarting: view.phase = "starting"; break;
    case PackProgress::Phase::kChecking:
      view.phase = "checking finished shards";
      view.unit = "bytes";
      view.done = progress.checked_bytes;
      view.total = progress.check_bytes;
      return view;
    case PackProgress::Phase::kPacking: view.phase = "packing"; break;
    case PackProgress::Phase::kFinishing: view.phase = "writing to the disk"; break;
  }
  view.done = progress.files_done;
  view.total = progress.files_total;
  view.bytes = progress.bytes_done;
  if (progress.rejected > 0) view.note = absl::StrCat(Grouped(progress.rejected), " rejected");
  return view;
}

void PrintSummary(const PackSummary& summary, const PackOptions& options, double seconds) {
  const auto row = [](const char* name, const std::string& value) { std::printf("%-11s %s\n", name, value.c_str()); };
  row("dataset", options.destination);
  row("samples", Grouped(summary.samples) +
                     (summary.samples_kept > 0 ? absl::StrCat(" (", Grouped(summary.samples_kept), " from the run before)")
                                               : std::string()));
  if (summary.classes > 0) row("classes", Grouped(summary.classes));
  row("images", HumanBytes(summary.image_bytes));
  row("shards", absl::StrCat(summary.shards, " of ", HumanBytes(summary.lmdb_bytes), " together"));
  if (summary.transcoded > 0) {
    row("transcoded", absl::StrCat(Grouped(summary.transcoded), " to baseline JPEG, with the same pixels"));
  }
  row("rejected", absl::StrCat(Grouped(summary.rejected), " no readable image, ", Grouped(summary.skipped), " skipped"));
  if (summary.damaged > 0) row("damaged", absl::StrCat(Grouped(summary.damaged), " packed, but their library warned"));
  if (summary.rejected + summary.skipped + summary.damaged + summary.transcoded + summary.warnings > 0) {
    row("report", options.destination + "/report.csv");
  }
  char text[96];
  const double packed = static_cast<double>(summary.samples - summary.samples_kept);
  std::snprintf(text, sizeof text, "%.2f s, %.0f images/s", seconds, packed / seconds);
  row("time", text);
  row("hash", summary.hash);
}

int RunPack(Arguments& arguments) {
  PackOptions& options = arguments.options;
  options.source_is_list = !arguments.list.empty();
  const size_t expected = options.source_is_list ? 1 : 2;
  if (arguments.paths.size() != expected) {
    std::fprintf(stderr, "headrace: %s\n", options.source_is_list ? "with --list, give one folder: DST"
                                                                  : "give two folders: SRC DST");
    return kExitUsage;
  }
  options.source = options.source_is_list ? arguments.list : arguments.paths[0];
  options.destination = arguments.paths.back();
  const absl::StatusOr<uint64_t> shard_bytes = ParseBytes(arguments.shard_size);
  if (!shard_bytes.ok() || *shard_bytes < kMinShardBytes || *shard_bytes > kMaxShardBytes) {
    std::fprintf(stderr, "headrace: --shard-size %s: not a size from 64KiB to 1TiB, such as 512MiB\n", arguments.shard_size.c_str());
    return kExitUsage;
  }
  options.shard_bytes = *shard_bytes;
  ::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes is an error like a full disk

  PackProgress progress;
  absl::StatusOr<PackSummary> summary = absl::UnknownError("did not run");
  const auto begin = std::chrono::steady_clock::now();
  RunWithProgress([&] { summary = Pack(options, &progress); }, [&] { return View(progress); }, &progress.stop,
                  arguments.quiet);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (absl::IsCancelled(summary.status())) {
    std::fprintf(stderr, "headrace: stopped; the same command goes on from here\n");
    return kExitFailed;
  }
  if (!summary.ok()) {
    PrintError(summary.status());
    return kExitFailed;
  }
  PrintSummary(*summary, options, seconds);
  return kExitDone;
}

}  // namespace

void AddPack(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("pack", "Pack a folder of images, or a list of files, into a dataset");
  const auto arguments = std::make_shared<Arguments>();
  PackOptions& options = arguments->options;
  command->footer(kExamples);
  command->add_option("paths", arguments->paths, "SRC DST, or DST alone with --list")->required()->expected(1, 2);
  command->add_option("--list", arguments->list, "CSV file with a header: path, perhaps label, further columns")
      ->type_name("FILE.csv");
  command->add_option("--threads", options.threads, "Threads that read files (default: one per core)")
      ->check(CLI::Range(1, 1024));
  command->add_option("--shard-size", arguments->shard_size, "Bytes per shard")->capture_default_str();
  command->add_option("--entry-interval", options.entry_interval, "MCUs per entry point; 0: no entry data")
      ->check(CLI::Range(0, kMaxEntryInterval))
      ->capture_default_str();
  command->add_flag("--keep-bytes", options.keep_bytes,
                    "Keep every file byte for byte: progressive, arithmetic-coded and multi-scan JPEGs too");
  command->add_flag("--check", options.check, "Decode every image; what does not decode is rejected");
  command->add_flag("--strict", options.strict, "Fail if any file is no readable image");
  command->add_flag("--overwrite", options.overwrite, "Replace the dataset, or the beginning of one, in DST");
  command->add_flag("--quiet", arguments->quiet, "No progress");
  command->callback([arguments, exit_code] { *exit_code = RunPack(*arguments); });
}

}  // namespace headrace
