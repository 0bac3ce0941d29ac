// The pages of an LMDB file: samples that ascend and values inside the file, or a status.
#include <filesystem>

#include "core/base/file.h"
#include "core/shard/lmdb/shard_scanner.h"
#include "core/shard/lmdb/shard_writer.h"
#include "tests/fuzz/input.h"

namespace headrace {
namespace {

using fuzz::Check;

// Below 64 KiB, which is what an input reaches: trees of one and two levels, values inside leaves and on pages of their own.
class Fixture {
 public:
  Fixture() {
    const std::string path = absl::StrCat(std::filesystem::temp_directory_path().string(), "/headrace-fuzz-", ::getpid());
    auto writer = *ShardWriter::Create(path, fields_, 1 << 20);
    for (uint64_t sample = 0; sample < 40; ++sample) {
      const std::string image(sample % 13 == 0 ? 5000 : 700, 'i'), label(8, 'l'), name(sample % 5, 'n');
      const auto bytes = [](const std::string& text) {
        return absl::Span<const uint8_t>(reinterpret_cast<const uint8_t*>(text.data()), text.size());
      };
      Check(writer->Append(sample, {bytes(image), bytes(label), bytes(name)}).ok());
    }
    Check(writer->Finish().ok());
    shard_ = *ReadFile(path, 1 << 20);
    std::filesystem::remove(path);
  }
  const std::string& shard() const { return shard_; }

  absl::Status Scan(const std::string& shard) const {
    file_.Write(shard.data(), shard.size());
    auto scanner = ShardScanner::Open(file_.path(), fields_);
    if (!scanner.ok()) return scanner.status();
    uint64_t samples = 0, last = 0;
    for (;; last = (*scanner)->sample(), ++samples) {
      const auto more = (*scanner)->Next();
      if (!more.ok()) return more.status();
      if (!*more) break;
      Check(samples == 0 || (*scanner)->sample() > last);
      for (const ScannedValue& value : (*scanner)->values()) {
        std::string bytes(value.length, ' ');
        Check(value.length <= shard.size() && value.offset <= shard.size() - value.length);
        Check((*scanner)->Read(value, bytes.data()).ok());
        Check(shard.compare(value.offset, value.length, bytes) == 0);
      }
    }
    Check(samples <= shard.size());
    return absl::OkStatus();
  }

 private:
  const std::vector<Field> fields_ = {{"image", FieldKind::kImage, 0}, {"label", FieldKind::kInt64, 0}, {"name", FieldKind::kText, 0}};
  const fuzz::MemoryFile file_;
  std::string shard_;
};

}  // namespace
}  // namespace headrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace;  // NOLINT
  static const Fixture fixture;
  fuzz::Input input(data, size);
  std::string shard = fixture.shard();
  if (const auto cut = input.Take<uint16_t>(); cut < shard.size()) shard.resize(shard.size() - cut);
  input.Patch(&shard);
  const absl::Status status = fixture.Scan(shard);
  fuzz::Check(status.ok() || absl::IsDataLoss(status));
  fuzz::Check(status.ok() || shard != fixture.shard());
  return 0;
}
