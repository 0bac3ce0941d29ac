#include "packer/list_bad.h"

#include <map>
#include <memory>

#include "core/decode/image_decoder.h"
#include "core/read/sample_reader.h"
#include "core/shard/known_bad.h"
#include "core/shard/manifest.h"

namespace headrace {
namespace {

// What a whole decoding of the image says: its error, or its library's warning.
ListedSample Decoded(const Dataset& dataset, const SampleRow& row) {
  ListedSample listed;
  for (size_t i = 0; i < dataset.fields().size(); ++i) {
    if (dataset.fields()[i].kind != FieldKind::kImage) continue;
    SampleReader reader;
    ImageDecoder decoder;
    RgbImage pixels;
    const auto bytes = reader.Read(dataset, row, static_cast<int>(i), Verify::kEvery, nullptr);
    const Rect all{0, 0, static_cast<int>(row.image.height), static_cast<int>(row.image.width)};
    absl::Status status = bytes.status();
    if (status.ok()) status = decoder.Decode(*bytes, row.image, all, &pixels, &listed.reason);
    listed.is_bad = !status.ok();
    if (listed.is_bad) listed.reason = std::string(status.message());
  }
  return listed;
}

}  // namespace

absl::StatusOr<BadList> ListBadSamples(const std::string& dir) {
  HEADRACE_ASSIGN_OR_RETURN(const std::shared_ptr<const Dataset> dataset, Dataset::Open(dir));
  HEADRACE_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(dir));
  const KnownBad known_bad(dataset, DefaultStateDir());
  const std::map<uint64_t, KnownBad::Entry> known = known_bad.entries();
  BadList list;
  list.samples = dataset->size();
  list.rejected = manifest.packed.rejected;
  list.was_checked = manifest.packed.check;
  list.problem = known_bad.problem();
  SampleRow row;
  for (uint64_t sample = 0; sample < dataset->size(); ++sample) {
    const absl::Status status = dataset->ReadRow(sample, &row);
    const auto found = known.find(sample);
    ListedSample listed;
    if (!status.ok()) {
      listed.is_bad = true;
      listed.reason = std::string(status.message());
    } else if (found != known.end()) {
      listed.is_bad = true;
      listed.reason = found->second.reason;
    } else if (row.image.damaged) {
      listed = Decoded(*dataset, row);
    } else {
      continue;
    }
    listed.shard = dataset->Locate(sample).first;
    listed.sample = sample;
    if (status.ok()) listed.name = ReadName(*dataset, row).value_or("");
    list.listed.push_back(std::move(listed));
  }
  return list;
}

}  // namespace headrace
