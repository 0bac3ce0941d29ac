#include "packer/verify.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/decode/image_decoder.h"
#include "core/decode/probe.h"
#include "core/read/sample_reader.h"
#include "core/shard/checksum.h"
#include "core/shard/index_file.h"
#include "core/shard/lmdb/shard_scanner.h"
#include "core/shard/manifest.h"
#include "packer/ordered_blocks.h"

namespace headrace {
namespace {

struct Finding {
  bool is_bad;
  std::string what;
};
using Findings = std::vector<Finding>;

bool SameImage(const ImageInfo& a, const ImageInfo& b) {
  return a.format == b.format && a.width == b.width && a.height == b.height && a.orientation == b.orientation &&
         a.components == b.components && a.progressive == b.progressive && a.transcoded == b.transcoded &&
         std::memcmp(a.sampling, b.sampling, sizeof a.sampling) == 0;
}

// Compares what the LMDB file says with what the index says. DATA_LOSS for the first difference.
absl::Status CompareWithLmdb(const Dataset& dataset, uint32_t shard, const std::atomic<bool>& stop) {
  HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<ShardScanner> scanner,
                            ShardScanner::Open(dataset.shard_path(shard), dataset.fields()));
  const uint64_t first = dataset.shard_first_sample(shard);
  const uint64_t end = shard + 1 < dataset.num_shards() ? dataset.shard_first_sample(shard + 1) : dataset.size();
  SampleRow row;
  for (uint64_t sample = first; sample < end && !stop; ++sample) {
    HEADRACE_ASSIGN_OR_RETURN(bool more, scanner->Next());
    if (!more || scanner->sample() != sample) {
      return absl::DataLossError(absl::StrCat("LMDB holds another sample than ", sample, " in its place"));
    }
    if (!dataset.ReadRow(sample, &row).ok()) continue;  // reported with the samples
    for (size_t i = 0; i < dataset.fields().size(); ++i) {
      const ScannedValue& value = scanner->values()[i];
      const SampleRow::Value& indexed = row.values[i];
      bool same = value.length == 8;
      if (HasLocation(dataset.fields()[i].kind)) {
        same = value.offset == indexed.location.offset && value.length == indexed.location.length;
      } else if (same) {
        uint8_t number[8];
        HEADRACE_RETURN_IF_ERROR(scanner->Read(value, number));
        const bool is_float = dataset.fields()[i].kind == FieldKind::kFloat64;
        same = std::memcmp(number, is_float ? static_cast<const void*>(&indexed.f64) : &indexed.i64, sizeof number) == 0;
      }
      if (!same) {
        return absl::DataLossError(absl::StrCat("sample ", sample, ": LMDB and index differ in field `",
                                                dataset.fields()[i].name, "`"));
      }
    }
  }
  if (stop) return absl::OkStatus();
  HEADRACE_ASSIGN_OR_RETURN(bool more, scanner->Next());
  return more ? absl::DataLossError("LMDB holds more samples than the index") : absl::OkStatus();
}

absl::Status CheckShard(const Dataset& dataset, const Manifest& manifest, uint32_t shard, VerifyProgress* progress) {
  HEADRACE_ASSIGN_OR_RETURN(Checksum128 checksum,
                            ChecksumFile(dataset.shard_path(shard), &progress->shard_bytes));
  if (checksum != manifest.shards[shard].lmdb_checksum) {
    return absl::DataLossError(absl::StrCat(dataset.shard_path(shard), " does not match its checksum in ",
                                            kManifestName));
  }
  const std::string index_path = ShardIndexPath(dataset.dir(), shard);
  HEADRACE_ASSIGN_OR_RETURN(UniqueFd index, OpenForReading(index_path));
  HEADRACE_ASSIGN_OR_RETURN(uint64_t index_bytes, FileSize(index.get(), index_path));
  HEADRACE_ASSIGN_OR_RETURN(IndexHeader header, ReadIndexHeader(index.get(), index_bytes, index_path));
  HEADRACE_RETURN_IF_ERROR(CheckEntryArea(index_path, header));
  return CompareWithLmdb(dataset, shard, progress->stop);
}

// "shard 0, sample 17 (cats/1.jpg): REASON". Lower layers put "shard 0, sample 17" before their reason as well.
std::string Describe(const Dataset& dataset, uint64_t sample, const std::string& reason) {
  const std::string place = absl::StrCat("shard ", dataset.Locate(sample).first, ", sample ", sample);
  const size_t begin = reason.starts_with(place) ? reason.find_first_not_of(",: ", place.size()) : 0;
  return absl::StrCat(DescribeSample(dataset, sample), ": ", reason.substr(std::min(begin, reason.size())));
}

// One thread's tools.
class SampleChecker {
 public:
  SampleChecker(const Dataset* dataset, bool decode) : dataset_(dataset), decode_(decode) {}

  absl::Status Check(uint64_t sample, std::string* warning) {
    warning->clear();
    HEADRACE_RETURN_IF_ERROR(dataset_->ReadRow(sample, &row_));
    for (size_t i = 0; i < dataset_->fields().size(); ++i) {
      const Field& field = dataset_->fields()[i];
      if (field.kind != FieldKind::kImage && field.kind != FieldKind::kText) continue;
      HEADRACE_ASSIGN_OR_RETURN(absl::Span<const uint8_t> bytes,
                                reader_.Read(*dataset_, row_, static_cast<int>(i), Verify::kEvery, nullptr));
      if (field.kind != FieldKind::kImage) continue;
      HEADRACE_RETURN_IF_ERROR(dataset_->ReadEntries(row_, &entries_).status());
      HEADRACE_ASSIGN_OR_RETURN(ImageInfo image, ProbeImage(bytes));
      if (!SameImage(image, row_.image)) return absl::DataLossError("the index describes another image");
      if (!decode_) continue;
      const Rect all{0, 0, static_cast<int>(image.height), static_cast<int>(image.width)};
      HEADRACE_RETURN_IF_ERROR(decoder_.Decode(bytes, image, all, &pixels_, warning));
    }
    return absl::OkStatus();
  }

 private:
  const Dataset* dataset_;
  bool decode_;
  SampleRow row_;
  ImageEntries entries_;
  SampleReader reader_;
  ImageDecoder decoder_;
  RgbImage pixels_;
};

}  // namespace

absl::StatusOr<VerifySummary> VerifyDataset(const VerifyOptions& options, VerifyProgress* progress,
                                            const std::function<void(bool, const std::string&)>& found) {
  HEADRACE_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> dataset, Dataset::Open(options.dataset));
  HEADRACE_ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(options.dataset));
  const int threads = options.threads > 0 ? options.threads : UsableCores();
  VerifySummary summary;
  summary.samples = dataset->size();
  summary.shards = dataset->num_shards();
  const auto consume = [&](Findings&& findings) {
    for (const Finding& finding : findings) found(finding.is_bad, finding.what);
  };

  progress->shard_bytes_total = manifest.lmdb_bytes();
  OrderedBlocks<Findings>(
      dataset->num_shards(), 1, threads, progress->stop,
      [&](uint64_t first, uint64_t, int) {
        const auto shard = static_cast<uint32_t>(first);
        const absl::Status status = CheckShard(*dataset, manifest, shard, progress);
        if (status.ok()) return Findings();
        ++progress->bad;
        return Findings{{true, absl::StrCat("shard ", shard, ": ", status.message())}};
      },
      [&](Findings&& findings) {
        summary.bad_shards += findings.size();
        consume(std::move(findings));
      });

  std::vector<std::unique_ptr<SampleChecker>> checkers;
  for (int i = 0; i < threads; ++i) {
    checkers.push_back(std::make_unique<SampleChecker>(dataset.get(), options.decode));
  }
  progress->samples_total = dataset->size();
  OrderedBlocks<Findings>(
      dataset->size(), 16, threads, progress->stop,
      [&](uint64_t first, uint64_t end, int thread) {
        Findings findings;
        std::string warning;
        for (uint64_t sample = first; sample < end; ++sample, ++progress->samples) {
          const absl::Status status = checkers[static_cast<size_t>(thread)]->Check(sample, &warning);
          if (status.ok() && warning.empty()) continue;
          progress->bad += !status.ok();
          findings.push_back({!status.ok(), Describe(*dataset, sample, status.ok() ? warning
                                                                                   : std::string(status.message()))});
        }
        return findings;
      },
      [&](Findings&& findings) {
        for (const Finding& finding : findings) ++(finding.is_bad ? summary.bad_samples : summary.damaged);
        consume(std::move(findings));
      });
  if (progress->stop) return absl::CancelledError("stopped");
  return summary;
}

}  // namespace headrace
