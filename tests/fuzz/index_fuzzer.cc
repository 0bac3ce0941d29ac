// An index file beside a whole shard: opened, read and served as the daemon does, and read as `headrace verify` does.
#include <filesystem>
#include <vector>

#include "core/base/file.h"
#include "core/pipeline/batch_fill.h"
#include "core/shard/index_file.h"
#include "core/shard/manifest.h"
#include "tests/fuzz/input.h"
#include "tests/support/tiny_dataset.h"

namespace headrace {
namespace {

using fuzz::Input;

class Fixture {
 public:
  Fixture() {
    index_ = *ReadFile(path_, 1 << 20);
    fields_ = tiny_.Open()->fields();
    std::filesystem::remove(path_);
    std::filesystem::create_symlink(file_.path(), path_);
  }

  const std::string& dir() const { return tiny_.dir(); }
  const std::string& path() const { return path_; }
  const std::string& index() const { return index_; }
  const std::vector<Field>& fields() const { return fields_; }
  void Replace(const std::string& index) const { file_.Write(index.data(), index.size()); }

 private:
  const testing::TinyDataset tiny_{{.samples = 6, .files = 5, .side_px = 12, .columns = true, .shard_bytes = 1 << 20}};
  const std::string path_ = ShardIndexPath(tiny_.dir(), 0);
  const fuzz::MemoryFile file_;
  std::string index_;
  std::vector<Field> fields_;
};

// Makes the checksums right of the header, of each row, and of the entry data and table sets they name.
void SealAll(const std::vector<Field>& fields, std::string* index) {
  const RowLayout layout = MakeRowLayout(fields);
  IndexHeader header;
  header.fields = fields;
  const size_t preamble = kIndexHeaderBytes + kIndexFieldBytes * fields.size();
  if (index->size() < preamble) return;
  char* const bytes = index->data();
  std::memset(bytes + 120, 0, 8);
  const uint64_t hash = XXH3_64bits(bytes, preamble);
  std::memcpy(bytes + 120, &hash, 8);
  const auto number = [&](size_t at) {
    uint64_t value = 0;
    std::memcpy(&value, bytes + at, sizeof value);
    return value;
  };
  header.num_samples = number(24);
  if (header.num_samples > index->size() / layout.row_bytes || header.entries_offset() > index->size()) return;
  const size_t area = header.entries_offset(), area_bytes = index->size() - area;
  for (size_t row = header.rows_offset(); row < area; row += layout.row_bytes) {
    const uint64_t entries = number(row + 32);
    if (entries < area_bytes && area_bytes - entries >= 64) {
      fuzz::Seal(bytes + area + entries, area_bytes - entries, fuzz::kEntriesLengthAt);
      const uint64_t tables = number(area + entries + 48);
      if (tables < area_bytes) fuzz::Seal(bytes + area + tables, area_bytes - tables, fuzz::kTablesLengthAt);
    }
    SealRow(layout, reinterpret_cast<uint8_t*>(bytes + row));
  }
}

Recipe TakeRecipe(Input* input) {
  Recipe recipe;
  switch (input->Below(4)) {
    case 0:
      recipe.transforms = {RandomResizedCrop{.height = 6, .width = 7}, RandomHorizontalFlip{}};
      break;
    case 1:
      recipe.transforms = {Resize{.shorter_side = 9, .max_size = 40}, CenterCrop{8, 8}};
      break;
    case 2:
      recipe.transforms = {RandomCrop{.height = 16, .width = 15, .padding = {1, 2, 3, 4}, .pad_if_needed = true}};
      break;
    default:
      recipe.transforms = {CenterCrop{30, 20}};
  }
  recipe.dtype = static_cast<DType>(input->Below(4));
  return recipe;
}

// One batch of all samples.
void Serve(const std::shared_ptr<const Dataset>& dataset, Input* input) {
  SessionSpec spec;
  spec.dataset = dataset;
  spec.recipe = TakeRecipe(input);
  spec.batch_size = static_cast<int>(dataset->size());
  spec.on_bad_sample = static_cast<OnBadSample>(input->Below(3));
  spec.fields.clear();
  for (const Field& field : dataset->fields()) spec.fields.push_back(field.name);
  const auto verify = static_cast<Verify>(input->Below(3));
  const absl::StatusOr<BatchLayout> layout = MakeBatchLayout(spec);
  fuzz::Check(spec.Validate().ok() && layout.ok());
  VerifiedSamples verified(dataset->size());
  std::vector<uint8_t> slot(layout->slot_bytes);
  BatchFill fill;
  fill.start.epoch = input->Take<uint8_t>();
  fill.range = StepAt(spec, fill.start);
  fill.order.emplace(dataset->size(), spec.seed, fill.start.epoch, spec.shuffle);
  fill.texts.Reset(*layout);
  static UnitFiller filler;
  filler.Fill(spec, *layout, {0, 0, fill.range.count}, &fill, slot.data(), verify, &verified, &fill.bad);
  FinishBatch(spec, *layout, slot.data(), &fill);
}

void VerifyIndex(const Fixture& fixture, const std::string& index) {
  const absl::StatusOr<UniqueFd> fd = OpenForReading(fixture.path());
  const absl::StatusOr<IndexHeader> header = ReadIndexHeader(fd->get(), index.size(), fixture.path());
  if (!header.ok()) return;
  (void)CheckEntryArea(fixture.path(), *header);
  (void)VisitIndexRows(fixture.path(), *header, fixture.fields(), [](const absl::Status&, const SampleRow&) {});
}

}  // namespace
}  // namespace headrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace;  // NOLINT
  static const Fixture fixture;
  Input input(data, size);
  const absl::Span<const uint8_t> how = input.Bytes(10);
  std::string index = fixture.index();
  index.resize(index.size() + static_cast<size_t>(input.Take<int8_t>()));
  input.Patch(&index);
  SealAll(fixture.fields(), &index);
  fixture.Replace(index);
  Input serving(how.data(), how.size());
  const bool verify = serving.Take<uint8_t>() % 8 == 1;
  if (verify) VerifyIndex(fixture, index);
  const auto dataset = Dataset::Open(fixture.dir());
  if (!dataset.ok()) return 0;
  for (uint64_t sample = 0; sample < (*dataset)->size(); ++sample) DescribeSample(**dataset, sample);
  Serve(*dataset, &serving);
  return 0;
}
