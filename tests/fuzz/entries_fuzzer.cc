// Entry data, table sets and scans as they lie on a disk, up to the pixels.
#include <memory>
#include <random>
#include <vector>

#include "core/decode/segment/kernels.h"
#include "core/decode/segment/segment_decoder.h"
#include "tests/augment/simd_targets.h"
#include "tests/fuzz/input.h"
#include "tests/support/indexed_jpeg.h"
#include "tests/support/jpeg_maker.h"

namespace headrace {
namespace {

using fuzz::Check;
using fuzz::Input;

constexpr int kMaxDecodedPixels = 1 << 16, kMaxPoints = 4096;

struct Sample {
  testing::IndexedJpeg jpeg;
  std::string tables;
  RgbImage pixels;
};

bool DecodeWhole(SegmentDecoder* decoder, const Sample& sample, RgbImage* out) {
  return decoder->Decode(sample.jpeg.View(), sample.jpeg.frame, sample.jpeg.file, 0, sample.jpeg.whole(), out).ok();
}

// Every sampling, with and without restart markers, entry points close together and far apart.
const std::vector<Sample>& Samples() {
  static const auto* const samples = [] {
    auto* all = new std::vector<Sample>();
    SegmentDecoder decoder;
    std::mt19937 random(1);
    for (const testing::Sampling& sampling : testing::AllSamplings()) {
      for (const int interval : {1, 2, 8, kMaxEntryInterval}) {
        testing::JpegOptions options;
        options.width = 20 + 4 * interval;
        options.height = 35;
        options.sampling = sampling;
        options.quality = interval == 2 ? 98 : 70;
        options.restart_interval = interval % 8 == 0 ? 0 : 3;
        options.ycck = interval == 8 && sampling.components() == 4;
        Sample sample;
        if (!sample.jpeg.Make(testing::MakeJpeg(options, &random), interval)) continue;
        sample.tables = EncodeTables(sample.jpeg.frame);
        Check(DecodeWhole(&decoder, sample, &sample.pixels));
        all->push_back(std::move(sample));
      }
    }
    return all;
  }();
  return *samples;
}

// One for each number of streams, and one for each SIMD target.
std::vector<std::unique_ptr<SegmentDecoder>>& Decoders() {
  static auto* const decoders = [] {
    auto* all = new std::vector<std::unique_ptr<SegmentDecoder>>();
    for (int streams = 1; streams <= 4; ++streams) all->push_back(std::make_unique<SegmentDecoder>(streams));
    OnEveryTarget([&](const std::string&) { all->push_back(std::make_unique<SegmentDecoder>(4, &ActiveSegmentKernels())); });
    return all;
  }();
  return *decoders;
}

// Entry data of a frame and of points that nobody has seen, encoded as they should be.
std::string MadeUpEntries(Input* input, const testing::IndexedJpeg& jpeg) {
  JpegFrame frame = jpeg.frame;
  EntryPoints entries;
  entries.interval = 1 + static_cast<int>(input->Below(kMaxEntryInterval));
  entries.scan_bytes = input->Below(static_cast<uint32_t>(jpeg.file.size()) - frame.scan_offset + 1);
  frame.width = static_cast<uint16_t>(1 + input->Take<uint16_t>() % 65500);
  frame.height = static_cast<uint16_t>(1 + input->Below(kMaxDecodedPixels / frame.width + 16));
  frame.restart_interval = input->Take<uint8_t>();
  for (int c = 0; c < frame.num_components; ++c) {
    frame.components[c].h = static_cast<uint8_t>(1 + input->Below(4));
    frame.components[c].v = static_cast<uint8_t>(1 + input->Below(4));
  }
  const int points = (frame.mcus_per_row() + entries.interval - 1) / entries.interval * frame.mcu_rows();
  if (points > kMaxPoints) return "";
  entries.points.resize(static_cast<size_t>(points));
  uint32_t byte = 0;
  for (EntryPoint& point : entries.points) {
    point.byte = byte += input->Take<uint8_t>();
    point.bit = input->Take<uint8_t>() % 8;
    for (int16_t& dc : point.dc) dc = static_cast<int16_t>(input->Take<uint8_t>() * 16 - 2048);
  }
  return EncodeEntries(frame, entries, 0);
}

Rect TakeRegion(Input* input, const JpegFrame& frame) {
  Rect region;
  region.left = static_cast<int>(input->Below(frame.width));
  region.top = static_cast<int>(input->Below(frame.height));
  region.width = std::min(1 + static_cast<int>(input->Take<uint16_t>()), frame.width - region.left);
  region.height = std::min(1 + static_cast<int>(input->Below(kMaxDecodedPixels / region.width + 1)), frame.height - region.top);
  return region;
}

bool SamePixels(const RgbImage& a, const RgbImage& b) {
  return a.width == b.width && a.height == b.height &&
         std::memcmp(a.pixels.data(), b.pixels.data(), a.stride() * static_cast<size_t>(a.height)) == 0;
}

void Decode(Input* input, const EntryView& view, const JpegFrame& frame, const std::string& file, const Sample& sample) {
  auto& decoders = Decoders();
  SegmentDecoder* const decoder = decoders[input->Below(4)].get();
  SegmentDecoder* const other = decoders[input->Below(static_cast<uint32_t>(decoders.size()))].get();
  const Rect region = TakeRegion(input, frame);
  const absl::StatusOr<ByteRange> needed = SegmentDecoder::NeededBytes(view, region);
  if (!needed.ok()) return;
  const uint64_t end = std::min<uint64_t>(needed->end, file.size()), begin = std::min(needed->begin, end);
  // A copy of exactly this size, so that the address sanitizer sees every byte outside.
  const std::vector<uint8_t> bytes(file.begin() + static_cast<ptrdiff_t>(begin), file.begin() + static_cast<ptrdiff_t>(end));
  RgbImage out, same;
  const absl::Status status = decoder->Decode(view, frame, bytes, begin, region, &out);
  if (decoder != other) {
    Check(other->Decode(view, frame, bytes, begin, region, &same).ok() == status.ok());
    Check(!status.ok() || SamePixels(out, same));
  }
  // Some rows only, and not to the end.
  if (const int step = input->Take<uint8_t>(); step > 0 && decoder->Begin(view, frame, bytes, begin, region).ok()) {
    for (int row = step - 1; row < region.height; row += step) decoder->Row(row);
  }
  // Nothing of this is left in the decoder.
  Check(DecodeWhole(decoder, sample, &out) && SamePixels(out, sample.pixels));
}

}  // namespace
}  // namespace headrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace;  // NOLINT
  Input input(data, size);
  const Sample& sample = Samples()[input.Below(static_cast<uint32_t>(Samples().size()))];
  const headrace::testing::IndexedJpeg& jpeg = sample.jpeg;
  const absl::Span<const uint8_t> how = input.Bytes(14);
  const bool made_up = input.Take<uint8_t>() % 2 != 0;
  const std::string entries = made_up ? MadeUpEntries(&input, jpeg) : jpeg.encoded;
  std::string all = entries + sample.tables;
  all.append(jpeg.file.begin(), jpeg.file.end());
  input.Patch(&all);
  fuzz::Seal(all.data(), entries.size(), fuzz::kEntriesLengthAt);
  fuzz::Seal(all.data() + entries.size(), sample.tables.size(), fuzz::kTablesLengthAt);
  // Each in memory of its own, and exactly as long.
  const auto part = [&](size_t begin, size_t length) {
    return std::vector<uint8_t>(all.begin() + static_cast<ptrdiff_t>(begin), all.begin() + static_cast<ptrdiff_t>(begin + length));
  };
  const std::vector<uint8_t> entry_bytes = part(0, entries.size()), tables = part(entries.size(), sample.tables.size());
  const std::string file = all.substr(entries.size() + tables.size());
  const absl::StatusOr<EntryView> view = EntryView::Parse(entry_bytes, file.size());
  if (!view.ok()) return 0;
  JpegFrame frame = view->frame();
  if (!ApplyTables(tables, &frame).ok()) return 0;
  Input decoding(how.data(), how.size());
  Decode(&decoding, *view, frame, file, sample);
  return 0;
}
