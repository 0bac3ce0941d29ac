#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "core/base/file.h"
#include "core/read/sample_reader.h"
#include "core/shard/index_file.h"
#include "core/shard/manifest.h"

namespace headrace {
namespace {

constexpr char kExamples[] = R"(
Examples:
  headrace inspect /data/train
      counts, sizes, histograms of sizes and samplings, the first samples
  headrace inspect --samples 50 /data/train)";

struct Arguments {
  std::string dataset;
  uint64_t samples = 5;
};

// Counts by bucket; a bucket's number orders it.
struct Histogram {
  std::map<int, uint64_t> counts;

  // Buckets by powers of two.
  void AddByOctave(uint64_t value) {
    int octave = 0;
    while (value >> 1 >> octave != 0) ++octave;
    ++counts[octave];
  }
};

struct Statistics {
  Histogram file_bytes, long_side;
  std::map<std::string, uint64_t> formats, samplings;
  std::map<int, uint64_t> orientations;
  std::map<int64_t, uint64_t> labels;
  uint64_t damaged = 0, transcoded = 0, bad_rows = 0;
  uint64_t with_entries = 0, entry_bytes = 0;
  std::map<uint32_t, uint64_t> entry_intervals;  // of shards
  uint32_t min_width = UINT32_MAX, min_height = UINT32_MAX, max_width = 0, max_height = 0;
  uint64_t pixels = 0;
};

std::string SamplingName(const ImageInfo& image) {
  if (image.format != ImageFormat::kJpeg) return absl::StrCat(FormatName(image.format), ", ", image.components, " channels");
  if (image.components == 1) return "grey";
  const auto is = [&](uint8_t luma) {
    return image.components == 3 && image.sampling[0] == luma && image.sampling[1] == 0x11 && image.sampling[2] == 0x11;
  };
  if (is(0x11)) return "4:4:4";
  if (is(0x21)) return "4:2:2";
  if (is(0x22)) return "4:2:0";
  if (is(0x12)) return "4:4:0";
  if (is(0x41)) return "4:1:1";
  std::string name;
  for (int i = 0; i < image.components; ++i) {
    absl::StrAppend(&name, i > 0 ? "," : "", image.sampling[i] >> 4, "x", image.sampling[i] & 15);
  }
  return name;
}

void PrintBar(const std::string& name, uint64_t count, uint64_t largest) {
  constexpr uint64_t kWidth = 40;
  const uint64_t length = (count * kWidth + largest - 1) / largest;
  std::printf("  %-22s %12s  %s\n", name.c_str(), Grouped(count).c_str(), std::string(length, '#').c_str());
}

template <typename Key, typename Name>
void PrintBars(const char* title, const std::map<Key, uint64_t>& counts, const Name& name) {
  uint64_t largest = 0;
  for (const auto& [key, count] : counts) largest = std::max(largest, count);
  std::printf("\n%s\n", title);
  for (const auto& [key, count] : counts) PrintBar(name(key), count, largest);
}

void AddRow(const Dataset& dataset, const SampleRow& row, Statistics* statistics) {
  if (const int label = dataset.FindField("label"); label >= 0) {
    ++statistics->labels[row.values[static_cast<size_t>(label)].i64];
  }
  const int image_field = dataset.FindField("image");
  if (image_field < 0) return;
  const ImageInfo& image = row.image;
  statistics->file_bytes.AddByOctave(row.values[static_cast<size_t>(image_field)].location.length);
  statistics->long_side.AddByOctave(std::max(image.width, image.height));
  ++statistics->formats[absl::StrCat(FormatName(image.format), image.progressive ? ", progressive" : "")];
  ++statistics->samplings[SamplingName(image)];
  ++statistics->orientations[image.orientation];
  statistics->damaged += image.damaged;
  statistics->transcoded += image.transcoded;
  statistics->with_entries += row.entries_bytes > 0;
  statistics->min_width = std::min(statistics->min_width, image.width);
  statistics->max_width = std::max(statistics->max_width, image.width);
  statistics->min_height = std::min(statistics->min_height, image.height);
  statistics->max_height = std::max(statistics->max_height, image.height);
  statistics->pixels += uint64_t{image.width} * image.height;
}

absl::StatusOr<Statistics> Collect(const Dataset& dataset) {
  Statistics statistics;
  for (uint32_t shard = 0; shard < dataset.num_shards(); ++shard) {
    const std::string path = ShardIndexPath(dataset.dir(), shard);
    HEADRACE_ASSIGN_OR_RETURN(UniqueFd fd, OpenForReading(path));
    HEADRACE_ASSIGN_OR_RETURN(uint64_t bytes, FileSize(fd.get(), path));
    HEADRACE_ASSIGN_OR_RETURN(IndexHeader header, ReadIndexHeader(fd.get(), bytes, path));
    statistics.entry_bytes += header.entries_bytes;
    ++statistics.entry_intervals[header.entry_interval];
    HEADRACE_RETURN_IF_ERROR(
        VisitIndexRows(path, header, dataset.fields(), [&](const absl::Status& status, const SampleRow& row) {
          if (status.ok()) {
            AddRow(dataset, row, &statistics);
          } else {
            ++statistics.bad_rows;
          }
        }));
  }
  return statistics;
}

void PrintOverview(const Manifest& manifest, const std::string& dir) {
  const PackedBy& packed = manifest.packed;
  std::printf("dataset   %s\nhash      %s\nsamples   %s\n", dir.c_str(), ManifestHash(manifest).c_str(),
              Grouped(manifest.samples()).c_str());
  if (!manifest.classes.empty()) std::printf("classes   %s\n", Grouped(manifest.classes.size()).c_str());
  std::printf("shards    %s, %s (wanted size %s)\n", Grouped(manifest.shards.size()).c_str(),
              HumanBytes(manifest.lmdb_bytes()).c_str(), HumanBytes(packed.shard_bytes).c_str());
  std::printf("packed    by %s from %s %s%s\n", packed.by.c_str(), packed.layout.c_str(),
              Printable(packed.source).c_str(), packed.check ? ", every image decoded" : "");
  std::printf("left out  %s rejected, %s skipped (report.csv)\n", Grouped(packed.rejected).c_str(),
              Grouped(packed.skipped).c_str());
  std::printf("\nfields\n");
  for (size_t i = 0; i < manifest.fields.size(); ++i) {
    const Field& field = manifest.fields[i];
    const std::string size = HasLocation(field.kind) ? absl::StrCat(HumanBytes(manifest.field_bytes[i]), ", longest ",
                                                                    HumanBytes(field.max_bytes))
                                                     : std::string();
    std::printf("  %-22s %-8s %s\n", field.name.c_str(), KindName(field.kind).c_str(), size.c_str());
  }
}

void PrintClasses(const Manifest& manifest, const Statistics& statistics) {
  if (statistics.labels.empty()) return;
  std::vector<uint64_t> counts;
  for (const auto& [label, count] : statistics.labels) counts.push_back(count);
  counts.resize(std::max(counts.size(), manifest.classes.size()));  // classes without samples
  std::sort(counts.begin(), counts.end());
  std::printf("\nsamples per %s: smallest %s, median %s, largest %s\n", manifest.classes.empty() ? "label" : "class",
              Grouped(counts.front()).c_str(), Grouped(counts[counts.size() / 2]).c_str(),
              Grouped(counts.back()).c_str());
}

void PrintEntries(const Manifest& manifest, const Dataset& dataset, const Statistics& statistics) {
  const int image = dataset.FindField("image");
  if (image < 0) return;
  std::string intervals;
  for (const auto& [interval, shards] : statistics.entry_intervals) {
    absl::StrAppend(&intervals, intervals.empty() ? "" : ", ",
                    interval == 0 ? std::string("none") : absl::StrCat("one per ", interval, " MCUs"),
                    statistics.entry_intervals.size() > 1 ? absl::StrCat(" in ", shards, " shards") : std::string());
  }
  std::printf("\nentry points  %s; %s images have them, %s", intervals.c_str(), Grouped(statistics.with_entries).c_str(),
              HumanBytes(statistics.entry_bytes).c_str());
  const uint64_t image_bytes = manifest.field_bytes[static_cast<size_t>(image)];
  if (image_bytes > 0) {
    std::printf(" (%.2f %% of the images)", 100.0 * static_cast<double>(statistics.entry_bytes) /
                                                static_cast<double>(image_bytes));
  }
  std::printf("\n");
}

void PrintImages(const Dataset& dataset, const Statistics& statistics) {
  if (statistics.formats.empty()) return;
  std::printf("\nimages    %u … %u px wide, %u … %u px high, mean %.2f megapixels\n", statistics.min_width,
              statistics.max_width, statistics.min_height, statistics.max_height,
              static_cast<double>(statistics.pixels) / static_cast<double>(dataset.size()) / 1e6);
  const auto same = [](const std::string& name) { return name; };
  PrintBars("longer side, px", statistics.long_side.counts,
            [](int octave) { return absl::StrCat(uint64_t{1} << octave, " … ", (uint64_t{2} << octave) - 1); });
  PrintBars("file size", statistics.file_bytes.counts, [](int octave) {
    return absl::StrCat(HumanBytes(uint64_t{1} << octave), " … ", HumanBytes((uint64_t{2} << octave) - 1));
  });
  PrintBars("format", statistics.formats, same);
  PrintBars("sampling", statistics.samplings, same);
  PrintBars("orientation (EXIF)", statistics.orientations, [](int orientation) { return std::to_string(orientation); });
  if (statistics.transcoded > 0) {
    std::printf("\n%s images were transcoded to baseline JPEG, with the same pixels\n",
                Grouped(statistics.transcoded).c_str());
  }
  if (statistics.damaged > 0) std::printf("\n%s images are damaged\n", Grouped(statistics.damaged).c_str());
}

void PrintSamples(const Dataset& dataset, const Manifest& manifest, uint64_t count) {
  std::printf("\nfirst samples\n");
  SampleRow row;
  for (uint64_t sample = 0; sample < std::min(count, dataset.size()); ++sample) {
    if (const absl::Status status = dataset.ReadRow(sample, &row); !status.ok()) {
      PrintError(status);
      continue;
    }
    std::printf("  %llu", static_cast<unsigned long long>(sample));
    if (dataset.FindField("image") >= 0) std::printf("  %ux%u", row.image.width, row.image.height);
    for (size_t i = 0; i < dataset.fields().size(); ++i) {
      const Field& field = dataset.fields()[i];
      const SampleRow::Value& value = row.values[i];
      if (field.kind == FieldKind::kInt64) {
        std::printf("  %s %lld", field.name.c_str(), static_cast<long long>(value.i64));
        if (field.name == "label" && value.i64 >= 0 && static_cast<size_t>(value.i64) < manifest.classes.size()) {
          std::printf(" (%s)", Printable(manifest.classes[static_cast<size_t>(value.i64)]).c_str());
        }
      }
      if (field.kind == FieldKind::kFloat64) std::printf("  %s %g", field.name.c_str(), value.f64);
      if (field.kind == FieldKind::kImage) std::printf("  %s", HumanBytes(value.location.length).c_str());
    }
    const absl::StatusOr<std::string> name = ReadName(dataset, row);
    std::printf("  %s\n", Printable(name.ok() ? *name : std::string(name.status().message())).c_str());
  }
}

int RunInspect(const Arguments& arguments) {
  const auto dataset = Dataset::Open(arguments.dataset);
  const absl::StatusOr<Manifest> manifest = ReadManifest(arguments.dataset);
  const absl::StatusOr<Statistics> statistics =
      dataset.ok() ? Collect(**dataset) : absl::StatusOr<Statistics>(dataset.status());
  for (const absl::Status& status : {manifest.status(), statistics.status()}) {
    if (status.ok()) continue;
    PrintError(status);
    return kExitFailed;
  }
  PrintOverview(*manifest, arguments.dataset);
  PrintClasses(*manifest, *statistics);
  PrintImages(**dataset, *statistics);
  PrintEntries(*manifest, **dataset, *statistics);
  PrintSamples(**dataset, *manifest, arguments.samples);
  if (statistics->bad_rows == 0) return kExitDone;
  std::printf("\n%s rows of the index are damaged; `headrace index %s` makes them anew\n",
              Grouped(statistics->bad_rows).c_str(), arguments.dataset.c_str());
  return kExitFailed;
}

}  // namespace

void AddInspect(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("inspect", "Show what a dataset holds");
  const auto arguments = std::make_shared<Arguments>();
  command->footer(kExamples);
  command->add_option("dataset", arguments->dataset, "The dataset's folder")->required();
  command->add_option("--samples", arguments->samples, "Samples to show")->check(CheckUnsigned)->capture_default_str();
  command->callback([arguments, exit_code] { *exit_code = RunInspect(*arguments); });
}

}  // namespace headrace
