#include "packer/pack.h"

#include <xxhash.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/utf8.h"
#include "core/shard/checksum.h"
#include "core/shard/durable_file.h"
#include "core/shard/manifest.h"
#include "packer/destination.h"
#include "packer/journal.h"
#include "packer/ordered_blocks.h"
#include "packer/read_stage.h"
#include "packer/report.h"
#include "packer/shard_output.h"
#include "packer/source.h"
#include "packer/totals.h"

namespace headrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kProgram[] = "headrace " HEADRACE_VERSION;
constexpr int kJournalVersion = 1;
// The first line while --overwrite removes what was there, so that after a kill the same command without it goes on.
constexpr char kRemoving[] = "{}";

uint64_t Chain(uint64_t hash, const void* data, size_t size) { return XXH3_64bits_withSeed(data, size, hash); }

// Goes on from the hash of the items before.
uint64_t ChainItem(uint64_t hash, const SourceItem& item, const FileStamp& stamp) {
  hash = Chain(hash, item.name.data(), item.name.size());
  hash = Chain(hash, &item.label, sizeof item.label);
  return Chain(hash, &stamp, sizeof stamp);
}

absl::StatusOr<std::unique_ptr<Source>> OpenSource(const PackOptions& options) {
  return options.source_is_list ? OpenListSource(options.source)
                                : OpenFolderSource(options.source, options.destination);
}

// What must not change between a run and the one that goes on with it. Threads and strictness may.
Json DescribeRun(const PackOptions& options, const Source& source) {
  Json fields = Json::array();
  for (const Field& field : source.fields()) fields.push_back(absl::StrCat(field.name, " ", KindName(field.kind)));
  uint64_t classes_hash = 0;
  for (const std::string& name : source.classes()) classes_hash = Chain(classes_hash, name.data(), name.size());
  return {{"journal", kJournalVersion},
          {"program", kProgram},
          {"layout", source.layout()},
          {"source", EscapeToUtf8(source.path())},
          {"list", source.content_hash()},
          {"fields", fields},
          {"classes", source.classes().size()},
          {"names of classes", classes_hash},
          {"shard size", options.shard_bytes},
          {"check", options.check},
          {"entry interval", options.entry_interval},
          {"keep bytes", options.keep_bytes}};
}

class Packer {
 public:
  Packer(const PackOptions& options, PackProgress* progress) : options_(options), progress_(progress) {}

  absl::StatusOr<PackSummary> Run() {
    HEADRACE_ASSIGN_OR_RETURN(source_, OpenSource(options_));
    totals_ = std::make_unique<Totals>(source_->fields(), source_->classes().size());
    HEADRACE_RETURN_IF_ERROR(MakeFolders(options_.destination));
    HEADRACE_ASSIGN_OR_RETURN(bool complete, TakeOver());
    if (complete) return Complete();
    HEADRACE_RETURN_IF_ERROR(KeepFinishedShards());
    HEADRACE_RETURN_IF_ERROR(SkipPackedItems());
    HEADRACE_RETURN_IF_ERROR(report_.Open(options_.destination + "/report.csv", state_.report_bytes));
    HEADRACE_RETURN_IF_ERROR(PackItems());
    HEADRACE_RETURN_IF_ERROR(ReportEmptyClasses());
    HEADRACE_RETURN_IF_ERROR(report_.Flush(/*sync=*/true));
    return Publish();
  }

 private:
  // Decides what the run does with what lies in the destination. True: a complete dataset that this very call made; only
  // the journal had not been removed yet.
  absl::StatusOr<bool> TakeOver() {
    const std::string& dir = options_.destination;
    const bool has_manifest = HasManifest(dir), has_journal = HasJournal(dir);
    if (has_manifest && !has_journal && !options_.overwrite) return Exists();
    HEADRACE_ASSIGN_OR_RETURN(journal_, Journal::Open(dir));
    const Json description = DescribeRun(options_, *source_);
    if (options_.overwrite || (journal_->header() == kRemoving && !has_manifest)) {
      HEADRACE_RETURN_IF_ERROR(journal_->Begin(kRemoving));
      HEADRACE_RETURN_IF_ERROR(RemoveDataset(dir));
      HEADRACE_RETURN_IF_ERROR(journal_->Begin(description.dump()));
      return false;
    }
    if (journal_->header().empty()) {
      if (has_manifest) return Exists();
      if (HasShards(dir)) {
        return absl::FailedPreconditionError(
            absl::StrCat(dir, " holds shards, but neither a dataset nor the journal of one that was begun; choose "
                              "another folder, or remove them with --overwrite"));
      }
      HEADRACE_RETURN_IF_ERROR(journal_->Begin(description.dump()));
      return false;
    }
    if (journal_->header() == description.dump()) return has_manifest;
    return has_manifest ? Exists() : Differs(description);
  }

  absl::Status Exists() const {
    absl::StatusOr<Manifest> manifest = ReadManifest(options_.destination);
    const std::string what =
        manifest.ok() ? absl::StrCat("a dataset of ", manifest->samples(), " samples") : "a dataset";
    return absl::AlreadyExistsError(absl::StrCat(options_.destination, " holds ", what,
                                                 " already; choose another folder, or replace it with --overwrite"));
  }

  absl::Status Differs(const Json& now) const {
    const Json before = Json::parse(journal_->header(), nullptr, false);
    std::string differences;
    for (const auto& [key, value] : now.items()) {
      const Json old = before.is_object() ? before.value(key, Json()) : Json();
      if (old == value) continue;
      const bool is_hash = key == "list" || key == "names of classes";
      absl::StrAppend(&differences, differences.empty() ? "" : "; ", key,
                      is_hash ? std::string(" changed") : absl::StrCat(" ", old.dump(), " → ", value.dump()));
    }
    return absl::FailedPreconditionError(
        absl::StrCat(options_.destination, " holds the beginning of a dataset that was packed differently (",
                     differences, "); go on with the same options and files, or begin anew with --overwrite"));
  }

  // Finished shards are kept as far as they are whole.
  absl::Status KeepFinishedShards() {
    progress_->phase = PackProgress::Phase::kChecking;
    for (const JournalEntry& entry : journal_->entries()) progress_->check_bytes += entry.shard.lmdb_bytes;
    uint64_t samples = 0;
    uint32_t kept = 0;
    for (const JournalEntry& entry : journal_->entries()) {
      if (progress_->stop) return absl::CancelledError("stopped");
      Totals totals = *totals_;
      if (!ReadFinishedShard(kept, samples, entry, &totals).ok()) break;
      *totals_ = totals;
      samples += entry.shard.samples;
      state_ = entry;
      ++kept;
    }
    HEADRACE_RETURN_IF_ERROR(journal_->KeepEntries(kept));
    summary_.samples_kept = samples;
    return RemoveShards(options_.destination, kept);
  }

  absl::Status ReadFinishedShard(uint32_t number, uint64_t first_sample, const JournalEntry& entry, Totals* totals) {
    const std::string index_path = ShardIndexPath(options_.destination, number);
    HEADRACE_ASSIGN_OR_RETURN(UniqueFd index, OpenForReading(index_path));
    HEADRACE_ASSIGN_OR_RETURN(uint64_t index_bytes, FileSize(index.get(), index_path));
    HEADRACE_ASSIGN_OR_RETURN(IndexHeader header, ReadIndexHeader(index.get(), index_bytes, index_path));
    HEADRACE_ASSIGN_OR_RETURN(Checksum128 checksum, ChecksumFile(ShardLmdbPath(options_.destination, number),
                                                                 &progress_->checked_bytes));
    if (checksum != entry.shard.lmdb_checksum || header.lmdb_checksum != checksum ||
        header.first_sample != first_sample || header.num_samples != entry.shard.samples) {
      return absl::DataLossError(absl::StrCat(index_path, " does not match the journal"));
    }
    HEADRACE_RETURN_IF_ERROR(CheckEntryArea(index_path, header));
    std::vector<Field> fields = source_->fields();
    for (Field& field : fields) field.max_bytes = UINT64_MAX;  // not known yet
    absl::Status rows;
    HEADRACE_RETURN_IF_ERROR(
        VisitIndexRows(index_path, header, fields, [&](const absl::Status& status, const SampleRow& row) {
          rows.Update(status);
          if (status.ok()) totals->Add(row);
        }));
    return rows;
  }

  // Goes through the items of the finished shards without opening them.
  absl::Status SkipPackedItems() {
    uint64_t hash = 0;
    SourceItem item;
    for (uint64_t i = 0; i < state_.items; ++i) {
      if (progress_->stop) return absl::CancelledError("stopped");
      HEADRACE_ASSIGN_OR_RETURN(bool more, source_->Next(&item));
      if (!more) return FilesChanged();
      hash = ChainItem(hash, item, item.path.empty() ? FileStamp{} : StampOf(item.path));
    }
    if (hash != state_.items_hash) return FilesChanged();
    progress_->rejected = state_.rejected + state_.skipped;
    progress_->files_done = state_.items;
    return absl::OkStatus();
  }

  absl::Status FilesChanged() const {
    return absl::FailedPreconditionError(absl::StrCat(
        "files in ", options_.source, " were added, removed or changed since a part of them was packed into ",
        options_.destination, "; begin anew with --overwrite"));
  }

  absl::Status PackItems() {
    progress_->phase = PackProgress::Phase::kPacking;
    ShardOutput output(options_.destination, source_->fields(), options_.shard_bytes, options_.entry_interval,
                       totals_->samples(), journal_.get());
    {
      ReadStageOptions read;
      read.threads = options_.threads > 0 ? options_.threads : UsableCores();
      read.check = options_.check;
      read.entry_interval = options_.entry_interval;
      read.keep_bytes = options_.keep_bytes;
      ReadStage stage(read, source_.get());
      ReadFileResult file;
      while (true) {
        if (progress_->stop) return absl::CancelledError("stopped");
        HEADRACE_ASSIGN_OR_RETURN(bool more, stage.Next(&file));
        if (!more) break;
        HEADRACE_RETURN_IF_ERROR(PackItem(&file, &output));
        stage.Recycle(std::move(file));
      }
    }
    progress_->phase = PackProgress::Phase::kFinishing;
    if (!output.shard_is_empty()) HEADRACE_RETURN_IF_ERROR(CloseShard(&output));
    return output.Finish();
  }

  absl::Status PackItem(ReadFileResult* result, ShardOutput* output) {
    const ReadFileResult& file = *result;
    ++state_.items;
    state_.items_hash = ChainItem(state_.items_hash, file.item, file.stamp);
    const Verdict verdict = file.item.verdict;
    if (verdict != Verdict::kPacked) HEADRACE_RETURN_IF_ERROR(report_.Add(file.item.name, verdict, file.item.reason));
    state_.rejected += verdict == Verdict::kRejected;
    state_.skipped += verdict == Verdict::kSkipped;
    summary_.warnings += verdict == Verdict::kWarning || verdict == Verdict::kNoEntries;
    if (file.is_packed()) {
      HEADRACE_RETURN_IF_ERROR(output->Append(result, totals_.get()));
      progress_->bytes_done += file.stamp.size;
    }
    progress_->files_done = state_.items;
    progress_->rejected = state_.rejected + state_.skipped;
    return output->shard_is_full() ? CloseShard(output) : absl::OkStatus();
  }

  absl::Status CloseShard(ShardOutput* output) {
    state_.report_bytes = report_.size();
    HEADRACE_RETURN_IF_ERROR(report_.Flush(/*sync=*/false));
    return output->CloseShard(state_);
  }

  absl::Status ReportEmptyClasses() {
    for (size_t i = 0; i < source_->classes().size(); ++i) {
      if (totals_->has_class(i)) continue;
      ++summary_.warnings;
      HEADRACE_RETURN_IF_ERROR(report_.Add(source_->classes()[i], Verdict::kWarning,
                                           absl::StrCat("class ", i, " has no sample; it keeps its number")));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<PackSummary> Publish() {
    if (totals_->samples() == 0) {
      HEADRACE_RETURN_IF_ERROR(journal_->Remove());
      return absl::InvalidArgumentError(absl::StrCat("no readable image in ", options_.source, " (", state_.rejected,
                                                     " files rejected, ", state_.skipped, " skipped: see ",
                                                     options_.destination, "/report.csv)"));
    }
    if (options_.strict && state_.rejected + state_.skipped > 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          state_.rejected, " files rejected and ", state_.skipped, " skipped, and --strict allows none: see ",
          options_.destination, "/report.csv. Without --strict the same command completes the dataset"));
    }
    Manifest manifest;
    manifest.fields = source_->fields();
    for (size_t i = 0; i < manifest.fields.size(); ++i) manifest.fields[i].max_bytes = totals_->max_bytes()[i];
    manifest.field_bytes = totals_->bytes();
    manifest.classes = source_->classes();
    for (const JournalEntry& entry : journal_->entries()) manifest.shards.push_back(entry.shard);
    manifest.packed = {kProgram,       source_->layout(), EscapeToUtf8(source_->path()), options_.shard_bytes,
                       options_.check, state_.rejected,   state_.skipped,                totals_->damaged(),
                       options_.entry_interval, options_.keep_bytes, totals_->transcoded()};
    const std::string json = ManifestToJson(manifest);
    HEADRACE_RETURN_IF_ERROR(WriteFileDurably(absl::StrCat(options_.destination, "/", kManifestName), {&json}));
    HEADRACE_RETURN_IF_ERROR(journal_->Remove());
    Summarize(manifest);
    return summary_;
  }

  absl::StatusOr<PackSummary> Complete() {
    HEADRACE_ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(options_.destination));
    HEADRACE_RETURN_IF_ERROR(journal_->Remove());
    summary_.was_complete = true;
    summary_.samples_kept = manifest.samples();
    Summarize(manifest);
    return summary_;
  }

  void Summarize(const Manifest& manifest) {
    summary_.samples = manifest.samples();
    summary_.classes = manifest.classes.size();
    summary_.shards = manifest.shards.size();
    summary_.image_bytes = manifest.field_bytes[0];
    summary_.lmdb_bytes = manifest.lmdb_bytes();
    summary_.rejected = manifest.packed.rejected;
    summary_.skipped = manifest.packed.skipped;
    summary_.damaged = manifest.packed.damaged;
    summary_.transcoded = manifest.packed.transcoded;
    summary_.hash = ManifestHash(manifest);
  }

  const PackOptions& options_;
  PackProgress* const progress_;
  std::unique_ptr<Source> source_;
  std::unique_ptr<Totals> totals_;
  std::unique_ptr<Journal> journal_;
  Report report_;
  JournalEntry state_;  // behind the last item
  PackSummary summary_;
};

// Walks the source once more, beside the packing, so that the time left can be told.
void CountItems(const PackOptions& options, PackProgress* progress, const std::atomic<bool>& stop) {
  absl::StatusOr<std::unique_ptr<Source>> source = OpenSource(options);
  if (!source.ok()) return;
  SourceItem item;
  for (uint64_t items = 0; !stop; ++items) {
    const absl::StatusOr<bool> more = (*source)->Next(&item);
    if (!more.ok()) return;
    if (!*more) {
      progress->files_total = items;
      return;
    }
  }
}

}  // namespace

absl::StatusOr<PackSummary> Pack(const PackOptions& options, PackProgress* progress) {
  if (options.shard_bytes < kMinShardBytes || options.shard_bytes > kMaxShardBytes) {
    return absl::InvalidArgumentError("a shard's size is 64 KiB to 1 TiB");
  }
  if (options.entry_interval < 0 || options.entry_interval > kMaxEntryInterval) {
    return absl::InvalidArgumentError(absl::StrCat("an entry interval is 0 to ", kMaxEntryInterval, " MCUs"));
  }
  std::atomic<bool> stop = false;
  std::thread counter([&] { CountItems(options, progress, stop); });
  absl::StatusOr<PackSummary> summary = Packer(options, progress).Run();
  stop = true;
  counter.join();
  return summary;
}

}  // namespace headrace
