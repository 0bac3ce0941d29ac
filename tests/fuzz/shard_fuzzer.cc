// An LMDB file that is not what was packed: a value is the packed one or a status, and `headrace index` and `verify` refuse it.
#include <filesystem>

#include "core/base/file.h"
#include "core/read/sample_reader.h"
#include "core/shard/manifest.h"
#include "packer/rebuild_index.h"
#include "packer/verify.h"
#include "tests/fuzz/input.h"
#include "tests/support/tiny_dataset.h"

namespace headrace {
namespace {

using fuzz::Check;

using Values = std::vector<std::string>;

// Of all samples, field by field; "" where it is a status or a number.
Values ReadAll(const Dataset& dataset) {
  Values values;
  SampleReader reader;
  SampleRow row;
  for (uint64_t sample = 0; sample < dataset.size(); ++sample) {
    Check(dataset.ReadRow(sample, &row).ok());
    for (size_t field = 0; field < dataset.fields().size(); ++field) {
      const FieldKind kind = dataset.fields()[field].kind;
      values.emplace_back();
      if (kind != FieldKind::kImage && kind != FieldKind::kText) continue;
      const auto bytes = reader.Read(dataset, row, static_cast<int>(field), Verify::kEvery, nullptr);
      Check(bytes.ok() || absl::IsDataLoss(bytes.status()));
      if (bytes.ok()) values.back().assign(bytes->begin(), bytes->end());
    }
  }
  return values;
}

class Fixture {
 public:
  Fixture() {
    shard_ = *ReadFile(path_, 1 << 20);
    values_ = ReadAll(*tiny_.Open());
    std::filesystem::remove(path_);
    std::filesystem::create_symlink(file_.path(), path_);
  }
  const std::string& dir() const { return tiny_.dir(); }
  const std::string& shard() const { return shard_; }
  const Values& values() const { return values_; }
  void Replace(const std::string& shard) const { file_.Write(shard.data(), shard.size()); }

 private:
  const testing::TinyDataset tiny_{{.samples = 6, .files = 5, .side_px = 12, .columns = true, .shard_bytes = 1 << 20}};
  const std::string path_ = ShardLmdbPath(tiny_.dir(), 0);
  const fuzz::MemoryFile file_;
  std::string shard_;
  Values values_;
};

}  // namespace
}  // namespace headrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace;  // NOLINT
  using fuzz::Check;
  static const Fixture fixture;
  fuzz::Input input(data, size);
  const bool with_lmdb = input.Take<uint8_t>() % 4 == 1;
  std::string shard = fixture.shard();
  shard.resize(shard.size() + static_cast<size_t>(input.Take<int8_t>()));
  input.Patch(&shard);
  fixture.Replace(shard);
  const bool changed = shard != fixture.shard();
  const auto dataset = Dataset::Open(fixture.dir());
  Check(dataset.ok() == (shard.size() == fixture.shard().size()));
  if (dataset.ok()) {
    const Values values = ReadAll(**dataset);
    for (size_t i = 0; i < values.size(); ++i) {
      Check(values[i] == fixture.values()[i] || (changed && values[i].empty()));
    }
  }
  if (!changed || !with_lmdb) return 0;
  RebuildProgress rebuild;
  Check(absl::IsDataLoss(RebuildIndex(fixture.dir(), 1, -1, &rebuild)));
  VerifyProgress progress;
  const VerifyOptions options{.dataset = fixture.dir(), .threads = 1, .decode = false};
  const auto verified = VerifyDataset(options, &progress, [](bool, const std::string&) {});
  Check(verified.ok() ? verified->bad_shards == 1 : !dataset.ok());
  return 0;
}
