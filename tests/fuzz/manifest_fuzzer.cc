// dataset.json of a dataset that is whole otherwise.
#include <filesystem>

#include "core/shard/manifest.h"
#include "core/slot/batch_layout.h"
#include "tests/fuzz/input.h"
#include "tests/support/tiny_dataset.h"

namespace headrace {
namespace {

class Fixture {
 public:
  Fixture() {
    const std::string path = dir() + "/" + kManifestName;
    std::filesystem::remove(path);
    std::filesystem::create_symlink(file_.path(), path);
  }
  const std::string& dir() const { return tiny_.dir(); }
  void Replace(const uint8_t* data, size_t size) const { file_.Write(data, size); }

 private:
  const testing::TinyDataset tiny_{{.samples = 4, .files = 2, .side_px = 8, .columns = true}};
  const fuzz::MemoryFile file_;
};

}  // namespace
}  // namespace headrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace;  // NOLINT
  static const Fixture fixture;
  fixture.Replace(data, size);
  const absl::StatusOr<Manifest> manifest = ReadManifest(fixture.dir());
  fuzz::Check(!manifest.ok() || ParseManifest(ManifestToJson(*manifest), "").ok());
  const auto dataset = Dataset::Open(fixture.dir());
  if (!dataset.ok()) return 0;
  SampleRow row;
  for (uint64_t sample = 0; sample < (*dataset)->size(); ++sample) (void)(*dataset)->ReadRow(sample, &row);
  SessionSpec spec;
  spec.dataset = *dataset;
  spec.recipe.transforms = {CenterCrop{8, 8}};
  spec.batch_size = 65536;
  if (spec.Validate().ok()) (void)MakeBatchLayout(spec);
  return 0;
}
