#include "tests/support/tiny_dataset.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/shard/checksum.h"
#include "core/shard/index_file.h"
#include "core/shard/manifest.h"
#include "packer/pack.h"
#include "tests/support/jpeg_maker.h"

namespace headrace::testing {
namespace {

// A set-up that fails is no test's result.
void Require(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "tiny dataset: %s\n", what.c_str());
  ::abort();
}

// An APP1 segment's body with nothing but an orientation.
std::string ExifOrientation(uint8_t orientation) {
  std::string body("Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", 24);
  body += static_cast<char>(orientation);
  body.append(7, '\0');
  return body;
}

}  // namespace

TinyDataset::TinyDataset(const TinyDatasetOptions& options) {
  char pattern[] = "/tmp/headrace-tiny-XXXXXX";
  Require(::mkdtemp(pattern) != nullptr, "mkdtemp");
  root_ = pattern;
  dir_ = root_ + "/packed";
  std::mt19937 random(1);
  for (int i = 0; i < options.files; ++i) {
    JpegOptions jpeg;
    const auto spread = static_cast<uint32_t>(2 * options.side_px + 1);
    jpeg.width = options.side_px + static_cast<int>(random() % spread);
    jpeg.height = options.side_px + static_cast<int>(random() % spread);
    jpeg.sampling = AllSamplings()[static_cast<size_t>(i) % 3];
    std::vector<uint8_t> file = MakeJpeg(jpeg, &random);
    if (i == 1) file = WithSegment(file, 0xE1, ExifOrientation(6));
    std::ofstream(absl::StrCat(root_, "/", i, ".jpg"), std::ios::binary)
        .write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
  }
  std::ofstream list(root_ + "/list.csv");
  list << "path" << (options.classes > 0 ? ",label" : "") << (options.columns ? ",weight,note" : "") << "\n";
  for (uint64_t i = 0; i < options.samples; ++i) {
    list << i % static_cast<uint64_t>(options.files) << ".jpg";
    if (options.classes > 0) list << "," << i % static_cast<uint64_t>(options.classes);
    if (options.columns) list << "," << i << ".5," << std::string(i % 7, 'x') << i << "n";
    list << "\n";
  }
  list.close();
  PackOptions pack;
  pack.source = root_ + "/list.csv";
  pack.source_is_list = true;
  pack.destination = dir_;
  pack.threads = 1;
  pack.shard_bytes = options.shard_bytes;
  PackProgress progress;
  const absl::StatusOr<PackSummary> summary = Pack(pack, &progress);
  Require(summary.ok(), std::string(summary.status().message()));
  Require(summary->samples == options.samples, "a file was rejected");
}

TinyDataset::~TinyDataset() { std::filesystem::remove_all(root_); }

std::shared_ptr<const Dataset> TinyDataset::Open() const {
  auto dataset = Dataset::Open(dir_);
  Require(dataset.ok(), std::string(dataset.status().message()));
  return *std::move(dataset);
}

void TinyDataset::Damage(uint64_t sample) const {
  const auto dataset = Open();
  SampleRow row;
  Require(dataset->ReadRow(sample, &row).ok(), "no such sample");
  const ValueLocation& location = row.values[static_cast<size_t>(dataset->FindField("image"))].location;
  const UniqueFd fd(::open(dataset->shard_path(location.shard).c_str(), O_WRONLY | O_CLOEXEC));
  Require(::pwrite(fd.get(), "damaged", 7, static_cast<off_t>(location.offset + location.length / 2)) == 7, "pwrite");
}

void TinyDataset::ReplaceShard(const std::string& lmdb) const {
  const auto write = [](const std::string& path, const std::string& bytes) {
    Require(std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size())).good(), path);
  };
  write(ShardLmdbPath(dir_, 0), lmdb);
  Manifest manifest = *ReadManifest(dir_);
  ShardEntry& entry = manifest.shards[0];
  entry.lmdb_bytes = lmdb.size();
  entry.lmdb_checksum = *ChecksumFile(ShardLmdbPath(dir_, 0));
  write(dir_ + "/dataset.json", ManifestToJson(manifest));
  const std::string path = ShardIndexPath(dir_, 0);
  std::string index = *ReadFile(path, 1 << 24);
  IndexHeader header = *ReadIndexHeader(OpenForReading(path)->get(), index.size(), path);
  header.lmdb_bytes = entry.lmdb_bytes;
  header.lmdb_checksum = entry.lmdb_checksum;
  const std::string encoded = EncodeIndexHeader(header);
  write(path, index.replace(0, encoded.size(), encoded));
}

}  // namespace headrace::testing
