// Decoding on one core: whole pictures against training crops (crop + skip), over the photographs
// of --photos=DIR or, without it, $HEADRACE_TEST_DATA/photos. Before anything is timed, crops must
// equal the whole picture cut to them.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/base/philox.h"
#include "core/decode/image_decoder.h"
#include "core/decode/probe.h"

namespace headrace {
namespace {

struct Photo {
  std::string bytes;
  ImageInfo info;
  Rect crop;

  absl::Span<const uint8_t> span() const {
    return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  }
  Rect whole() const { return {0, 0, static_cast<int>(info.height), static_cast<int>(info.width)}; }
};

// As RandomResizedCrop draws it with its defaults: area 0.08 … 1, ratio 3/4 … 4/3, here clipped
// instead of drawn again.
Rect TrainCrop(const ImageInfo& info, uint64_t number) {
  const std::array<uint32_t, 4> area = Philox(1, 0, number, 0), place = Philox(1, 0, number, 1);
  const double pixels = (0.08 + 0.92 * UnitDouble(area[0], area[1])) * info.width * info.height;
  const double ratio =
      std::exp(std::log(0.75) + UnitDouble(area[2], area[3]) * std::log(16.0 / 9.0));
  Rect crop;
  crop.width = std::min(static_cast<int>(info.width),
                        static_cast<int>(std::lround(std::sqrt(pixels * ratio))));
  crop.height = std::min(static_cast<int>(info.height),
                         static_cast<int>(std::lround(std::sqrt(pixels / ratio))));
  crop.left = static_cast<int>(UnitDouble(place[0], place[1]) *
                               (static_cast<int>(info.width) - crop.width + 1));
  crop.top = static_cast<int>(UnitDouble(place[2], place[3]) *
                              (static_cast<int>(info.height) - crop.height + 1));
  return crop;
}

std::vector<Photo> LoadPhotos(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Photo> photos;
  for (const std::string& path : paths) {
    Photo photo;
    photo.bytes = ReadFile(path, uint64_t{1} << 30).value();
    const absl::StatusOr<ImageInfo> info = ProbeImage(photo.span());
    if (!info.ok()) continue;
    photo.info = *info;
    photo.crop = TrainCrop(*info, photos.size());
    photos.push_back(std::move(photo));
  }
  return photos;
}

bool CropsEqualWhole(const std::vector<Photo>& photos) {
  ImageDecoder decoder;
  RgbImage whole, part;
  for (const Photo& photo : photos) {
    if (!decoder.Decode(photo.span(), photo.info, photo.whole(), &whole, nullptr).ok())
      return false;
    if (!decoder.Decode(photo.span(), photo.info, photo.crop, &part, nullptr).ok()) return false;
    for (int y = 0; y < part.height; ++y) {
      const uint8_t* expected = whole.row(photo.crop.top + y) + 3 * photo.crop.left;
      if (std::memcmp(part.row(y), expected, part.stride()) != 0) return false;
    }
  }
  return true;
}

void Decode(benchmark::State& state, const std::vector<Photo>& photos, bool crop) {
  ImageDecoder decoder;
  RgbImage image;
  for (auto _ : state) {
    for (const Photo& photo : photos) {
      const absl::Status status = decoder.Decode(
          photo.span(), photo.info, crop ? photo.crop : photo.whole(), &image, nullptr);
      if (!status.ok()) state.SkipWithError("a photo cannot be decoded");
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(photos.size()));
}

void Probe(benchmark::State& state, const std::vector<Photo>& photos) {
  for (auto _ : state) {
    for (const Photo& photo : photos) benchmark::DoNotOptimize(ProbeImage(photo.span()).ok());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(photos.size()));
}

void Orient(benchmark::State& state) {
  RgbImage stored, shown;
  stored.Resize(500, 375);
  for (auto _ : state) {
    ApplyOrientation(stored, static_cast<int>(state.range(0)), &shown);
    benchmark::DoNotOptimize(shown.pixels.data());
  }
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  using namespace headrace;
  benchmark::Initialize(&argc, argv);
  const char* data = std::getenv("HEADRACE_TEST_DATA");
  std::string folder = data != nullptr ? std::string(data) + "/photos" : "";
  if (argc > 1 && std::strncmp(argv[1], "--photos=", 9) == 0) folder = argv[1] + 9;
  if (!std::filesystem::is_directory(folder)) {
    std::fprintf(stderr, "decode_bench: name a folder of photographs: --photos=DIR\n");
    return 1;
  }
  const std::vector<Photo> photos = LoadPhotos(folder);
  if (photos.empty() || !CropsEqualWhole(photos)) {
    std::fprintf(stderr,
                 "decode_bench: no photographs, or crops that differ from whole pictures\n");
    return 1;
  }
  for (const int threads : {1, 2}) {
    benchmark::RegisterBenchmark("Whole",
                                 [&](benchmark::State& state) { Decode(state, photos, false); })
        ->Threads(threads)
        ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark("TrainCrop",
                                 [&](benchmark::State& state) { Decode(state, photos, true); })
        ->Threads(threads)
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::RegisterBenchmark("Probe", [&](benchmark::State& state) { Probe(state, photos); });
  benchmark::RegisterBenchmark("Orient", &Orient)
      ->Arg(1)
      ->Arg(2)
      ->Arg(3)
      ->Arg(6)
      ->Unit(benchmark::kMicrosecond);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
