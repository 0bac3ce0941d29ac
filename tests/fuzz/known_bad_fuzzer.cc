// bad_samples.txt: what anybody may have put beside a dataset. Lines that begin with `!` get the dataset's hash, the shard's time
// and a right checksum, the others are as they come.
#include "core/shard/known_bad.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_split.h"
#include "core/base/file.h"
#include "tests/fuzz/input.h"
#include "tests/support/tiny_dataset.h"

namespace headrace {
namespace {

class Fixture {
 public:
  Fixture() : dataset_(tiny_.Open()) {
    KnownBad(dataset_, "").Add(0, 7, "x");
    const std::string line = *ReadFile(path(), 4096);
    prefix_ = line.substr(18, line.find(" 0 7 x") - 18);
  }
  std::string path() const { return tiny_.dir() + "/" + KnownBad::kFileName; }
  const std::shared_ptr<const Dataset>& dataset() const { return dataset_; }

  void Replace(const uint8_t* data, size_t size) const {
    std::string text;
    for (absl::string_view line : absl::StrSplit(absl::string_view(reinterpret_cast<const char*>(data), size), '\n')) {
      if (!line.empty() && line[0] == '!') {
        const std::string rest = absl::StrCat(prefix_, line.substr(1));
        absl::StrAppend(&text, absl::Hex(XXH3_64bits(rest.data(), rest.size()), absl::kZeroPad16), " ", rest, "\n");
      } else {
        absl::StrAppend(&text, line, "\n");
      }
    }
    std::filesystem::remove(path());  // what is cut to nothing and written anew goes to the disk at once
    std::ofstream(path(), std::ios::binary) << text;
  }

 private:
  const testing::TinyDataset tiny_{{.samples = 20, .files = 4, .side_px = 8}};
  const std::shared_ptr<const Dataset> dataset_;
  std::string prefix_;  // "HASH TIME", of shard 0
};

bool operator==(const KnownBad::Entry& a, const KnownBad::Entry& b) { return a.rows == b.rows && a.reason == b.reason; }

}  // namespace
}  // namespace headrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace;  // NOLINT
  static const Fixture fixture;
  fixture.Replace(data, size);
  KnownBad known(fixture.dataset(), "");
  for (const auto& [sample, entry] : known.entries()) {
    fuzz::Check(sample < fixture.dataset()->size() && entry.reason.size() <= 500);
    fuzz::Check(known.Find(sample, entry.rows) == entry.reason);
  }
  known.Add(0, 0, "added");
  // Later runs know the same, whatever lies around it.
  const auto mine = known.entries(), later = KnownBad(fixture.dataset(), "").entries();
  fuzz::Check(mine.size() == later.size() && std::equal(mine.begin(), mine.end(), later.begin(), [](const auto& a, const auto& b) {
    return a.first == b.first && a.second == b.second;
  }));
  return 0;
}
