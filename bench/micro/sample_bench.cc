// One sample from a photograph in memory to float16 elements, stage by stage, on one core: RandomResizedCrop(224), flip,
// normalise, from entry points and through libjpeg. Prints JSON.
//
//   sample_bench [--photos=DIR] [--isa=best|avx512|avx2|sse4|portable] [--passes=N] [--every=N] [--streams=N]
//
// Each image's time is the least of all passes by the thread's CPU time. A pass goes through all images before a stage sees one
// again, so that neither caches nor branch predictors know it. Before anything is timed, both ways must give the same bits.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/augment/draw.h"
#include "core/augment/horizontal_table.h"
#include "core/augment/pack.h"
#include "core/augment/render.h"
#include "core/augment/resize.h"
#include "core/augment/simd_target.h"
#include "core/decode/segment/kernels.h"
#include "core/decode/segment/segment_decoder.h"
#include "tests/support/indexed_jpeg.h"
#include "tests/support/test_files.h"

namespace headrace {
namespace {

constexpr int kSize = 224;

struct Options {
  std::string photos, isa = "best";
  int passes = 12, every = 3, streams = 4;
};

struct Sample {
  testing::IndexedJpeg image;
  EntryView view;
  Draw draw;
  Rect crop;  // of the stored image
};

double CpuSeconds() {
  timespec time;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Inner loops that do nothing, so that a stage's time is a difference.
int NoTurns(EntropyContext* context) {
  for (int i = 0; i < kMaxStreams; ++i) {
    EntropyContext::Stream& stream = context->streams[static_cast<size_t>(i)];
    if (stream.end == UINT64_MAX) continue;  // idle
    stream.position = stream.end;
    return i;
  }
  std::abort();
}
void NoIdct(const IdctBlock* blocks, int n, const uint16_t*, size_t) {
  for (int i = 0; i < n; ++i) std::fill_n(blocks[i].coefficients, 64, int16_t{0});
}
void NoRow(const uint8_t*, int, uint8_t*) {}
void NoRows(const uint8_t*, const uint8_t*, int, uint8_t*) {}
void NoRowsBiased(const uint8_t*, const uint8_t*, int, int, uint8_t*) {}
void NoColours(const uint8_t*, const uint8_t*, const uint8_t*, int, uint8_t*, uint8_t*, uint8_t*) {}

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options), out_(3 * kSize * kSize) {
    RandomResizedCrop crop;
    crop.height = crop.width = kSize;
    recipe_.transforms = {crop, RandomHorizontalFlip{}};
    recipe_.normalize = Normalize{};
    recipe_.dtype = DType::kFloat16;
    plan_ = MakePackPlan(recipe_);
    kernels_[3] = ActiveSegmentKernels();
    kernels_[2] = kernels_[3];
    kernels_[2].upsample_h2v1 = &NoRow;
    kernels_[2].upsample_h2v2 = &NoRows;
    kernels_[2].upsample_h1v2 = &NoRowsBiased;
    kernels_[2].ycc_to_rgb = &NoColours;
    kernels_[1] = kernels_[2];
    kernels_[1].idct = &NoIdct;
    kernels_[0] = kernels_[1];
    kernels_[0].decode_turns = &NoTurns;
    for (size_t i = 0; i < 4; ++i) decoders_[i] = std::make_unique<SegmentDecoder>(options.streams, &kernels_[i]);
    renderer_ = std::make_unique<SampleRenderer>(options.streams);
  }

  bool Load() {
    std::vector<std::vector<uint8_t>> files = testing::FilesBelow(options_.photos);
    for (size_t i = 0; i < files.size(); i += static_cast<size_t>(options_.every)) {
      auto sample = std::make_unique<Sample>();
      if (!sample->image.Make(std::move(files[i]), kDefaultEntryInterval)) continue;
      const ImageInfo& info = sample->image.info;
      if (info.orientation != 1) continue;
      sample->view = sample->image.View();
      DrawSample(recipe_, 1, 0, i, static_cast<int>(info.width), static_cast<int>(info.height), &sample->draw);
      sample->crop = sample->draw.crop;
      samples_.push_back(std::move(sample));
    }
    return !samples_.empty();
  }

  bool BothWaysAgree() {
    for (const auto& sample : samples_) {
      Render(*sample);
      const std::vector<uint16_t> got = out_;
      Library(*sample);
      if (got != out_) return false;
      std::fill(out_.begin(), out_.end(), uint16_t{0});
      Decode(*sample, 3, /*resized=*/true, /*packed=*/true);
      if (got != out_) return false;
    }
    return true;
  }

  void Run() {
    const std::vector<std::pair<const char*, std::function<void(const Sample&)>>> stages = {
        {"segments, tables, un-stuffing", [this](const Sample& s) { Decode(s, 0, false, false); }},
        {"+ entropy", [this](const Sample& s) { Decode(s, 1, false, false); }},
        {"+ inverse DCT", [this](const Sample& s) { Decode(s, 2, false, false); }},
        {"+ upsampling, colour", [this](const Sample& s) { Decode(s, 3, false, false); }},
        {"+ horizontal pass", [this](const Sample& s) { Decode(s, 3, true, false); }},
        {"+ vertical pass, normalise, cast", [this](const Sample& s) { Decode(s, 3, true, true); }},
        {"sample from entry points", [this](const Sample& s) { Render(s); }},
        {"sample through libjpeg", [this](const Sample& s) { Library(s); }},
    };
    std::vector<std::vector<double>> best(stages.size(), std::vector<double>(samples_.size(), 1e9));
    for (int pass = 0; pass < options_.passes; ++pass) {
      for (size_t stage = 0; stage < stages.size(); ++stage) {
        for (size_t i = 0; i < samples_.size(); ++i) {
          const double begin = CpuSeconds();
          stages[stage].second(*samples_[i]);
          best[stage][i] = std::min(best[stage][i], CpuSeconds() - begin);
        }
      }
    }
    Print(stages.size(), [&](size_t stage) { return stages[stage].first; }, best);
  }

 private:
  // Stages up to `level`; then the rows go on into the resize, and on into the output.
  void Decode(const Sample& sample, size_t level, bool resized, bool packed) {
    SegmentDecoder& decoder = *decoders_[level];
    const Rect& crop = sample.crop;
    if (!decoder.Begin(sample.view, sample.image.frame, sample.image.file, 0, crop).ok()) std::abort();
    const auto source = [&](int row) { return decoder.Row(row); };
    if (!resized || (crop.height == kSize && crop.width == kSize)) {
      for (int row = 0; row < crop.height; ++row) {
        const PlanarRow pixels = source(row);
        if (packed) PackRow(plan_, pixels, row, kSize, kSize, out_.data());
      }
      return;
    }
    const Rect window = {0, 0, kSize, kSize};
    const ResizeJob job = {crop.height, crop.width, kSize, kSize, Interpolation::kBilinear, window, sample.draw.flip};
    resizer_.Run(
        job, source,
        [&](int row, const uint8_t* planes) {
          if (packed) PackRow(plan_, {planes, PlaneStride(kSize)}, row, kSize, kSize, out_.data());
        },
        [&](int row, const BlendedRow& blended) {
          return !packed || PackBlendedRow(plan_, blended, row, kSize, kSize, out_.data());
        });
    FinishPacking();
  }

  void Render(const Sample& sample) {
    const testing::IndexedJpeg& image = sample.image;
    const auto read = [&](uint64_t begin, uint64_t end) -> absl::StatusOr<absl::Span<const uint8_t>> {
      if (begin == 0) std::abort();  // the whole file: not from its entry points
      return absl::MakeConstSpan(image.file).subspan(begin, end - begin);
    };
    const EncodedImage encoded = {&image.info, image.file.size(), read, &sample.view, &image.frame};
    if (!renderer_->Render(encoded, recipe_, sample.draw, out_.data(), nullptr).ok()) std::abort();
  }

  void Library(const Sample& sample) {
    const testing::IndexedJpeg& image = sample.image;
    if (!renderer_->Render(image.file, image.info, recipe_, sample.draw, out_.data(), nullptr).ok()) std::abort();
  }

  template <typename Name>
  void Print(size_t stages, Name name, const std::vector<std::vector<double>>& best) const {
    double pixels = 0;
    for (const auto& sample : samples_) pixels += static_cast<double>(sample->crop.width) * sample->crop.height;
    const auto n = static_cast<double>(samples_.size());
    std::printf("{\"simd_target\": \"%s\", \"streams\": %d, \"passes\": %d, \"images\": %zu, \"mean_crop_px\": %.0f,\n \"us\": {",
                SimdTarget().c_str(), options_.streams, options_.passes, samples_.size(), pixels / n);
    for (size_t stage = 0; stage < stages; ++stage) {
      double sum = 0;
      for (const double seconds : best[stage]) sum += seconds;
      std::printf("%s\n  \"%s\": %.1f", stage == 0 ? "" : ",", name(stage), sum / n * 1e6);
    }
    std::printf("}}\n");
  }

  const Options options_;
  Recipe recipe_;
  PackPlan plan_;
  SegmentKernels kernels_[4];  // that leave out everything behind tables, entropy, inverse DCT; all
  std::unique_ptr<SegmentDecoder> decoders_[4];
  std::unique_ptr<SampleRenderer> renderer_;
  Resizer resizer_;
  std::vector<std::unique_ptr<Sample>> samples_;
  std::vector<uint16_t> out_;
};

bool ParseOption(const std::string& argument, Options* options) {
  const size_t equals = argument.find('=');
  if (equals == std::string::npos) return false;
  const std::string name = argument.substr(0, equals), value = argument.substr(equals + 1);
  if (name == "--photos") options->photos = value;
  if (name == "--isa") options->isa = value;
  if (name == "--passes") options->passes = std::max(1, std::atoi(value.c_str()));
  if (name == "--every") options->every = std::max(1, std::atoi(value.c_str()));
  if (name == "--streams") options->streams = std::atoi(value.c_str());
  return name == "--photos" || name == "--isa" || name == "--passes" || name == "--every" || name == "--streams";
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  using namespace headrace;
  Options options;
  options.photos = (testing::TestDataFolder() / "photos").string();
  for (int i = 1; i < argc; ++i) {
    if (!ParseOption(argv[i], &options)) {
      std::fprintf(stderr, "sample_bench: what is %s?\n", argv[i]);
      return 2;
    }
  }
  const std::pair<const char*, Isa> isas[] = {{"best", Isa::kBest}, {"avx512", Isa::kAvx512}, {"avx2", Isa::kAvx2},
                                              {"sse4", Isa::kSse4}, {"portable", Isa::kPortable}};
  for (const auto& [name, isa] : isas) {
    if (options.isa == name) LimitIsa(isa);
  }
  Bench bench(options);
  if (!bench.Load()) {
    std::fprintf(stderr, "sample_bench: no photographs with entry points in %s: --photos=DIR\n", options.photos.c_str());
    return 1;
  }
  if (!bench.BothWaysAgree()) {
    std::fprintf(stderr, "sample_bench: entry points and libjpeg give different elements\n");
    return 1;
  }
  bench.Run();
  return 0;
}
