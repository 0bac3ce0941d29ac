#include "core/augment/gpu/planner.h"

#include <algorithm>
#include <bit>

#include "core/decode/entry/canonical_codes.h"
#include "core/decode/image_decoder.h"
#include "core/decode/segment/segment_decoder.h"

namespace headrace::gpu {
namespace {

uint64_t RoundUp(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

void AddChunks(uint32_t image, uint64_t total, uint32_t size, std::pmr::vector<Chunk>* chunks) {
  for (uint64_t first = 0; first < total; first += size) chunks->push_back({image, static_cast<uint32_t>(first)});
}

constexpr size_t kEarly = 16;  // tables
constexpr size_t kMaxFilters = 4096;  // some 20 MB
constexpr size_t kShortPercent = 85;  // of the images: then both groups end about together (70: 4 % later, 92: as late)

HuffmanTable MakeTable(const HuffmanSpec& spec) {
  HuffmanTable table = {};
  CanonicalCodes codes;
  codes.Build(spec);
  std::copy(codes.limit().begin(), codes.limit().end(), table.limit);
  std::copy(codes.offset().begin(), codes.offset().end(), table.offset);
  std::copy(spec.symbols.begin(), spec.symbols.end(), table.symbols);
  uint16_t* next = table.lookup;
  const uint8_t* symbol = table.symbols;
  for (int bits = 1; bits <= kLookupBits; ++bits) {
    for (int i = 0; i < spec.counts[static_cast<size_t>(bits - 1)]; ++i) {
      next = std::fill_n(next, 1 << (kLookupBits - bits), static_cast<uint16_t>(bits << 8 | *symbol++));
    }
  }
  return table;
}

// The bits of a byte's element.
uint32_t ValueOf(const PackPlan& plan, size_t channel, size_t byte) {
  switch (plan.dtype) {
    case DType::kUInt8:
      return static_cast<uint32_t>(byte);
    case DType::kFloat32:
      return std::bit_cast<uint32_t>(plan.float32[channel][byte]);
    default:
      return plan.float16[channel][byte];
  }
}

Element ElementOf(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
      return Element::kUInt8;
    case DType::kFloat32:
      return Element::kFloat32;
    default:
      return Element::kBits16;
  }
}

}  // namespace

absl::StatusOr<Steps> PlanForGpu(const ImageInfo& info, const Draw& draw, std::vector<Stage>* stages) {
  if (!draw.error.empty()) return absl::UnimplementedError(draw.error);
  Steps steps;
  HEADRACE_RETURN_IF_ERROR(PlanSteps(draw.steps, static_cast<int>(info.oriented_height()),
                                     static_cast<int>(info.oriented_width()), stages, &steps.source));
  const size_t last_resize = LastResize(*stages);
  for (size_t i = 0; i < stages->size(); ++i) {
    const Stage& stage = (*stages)[i];
    const bool mirrors = std::holds_alternative<HorizontalFlipStep>(*stage.step);
    const bool turns = std::holds_alternative<VerticalFlipStep>(*stage.step);
    if ((mirrors || turns) && (last_resize == stages->size() || i > last_resize)) {
      steps.mirrored ^= mirrors;
      steps.upside_down ^= turns;
    } else if (i != last_resize && !PassesPixels(stage)) {
      return absl::UnimplementedError("steps of another kind");
    }
  }
  if (last_resize < stages->size()) steps.resize = &(*stages)[last_resize];
  steps.height = stages->empty() ? steps.source.height : stages->back().window.height;
  steps.width = stages->empty() ? steps.source.width : stages->back().window.width;
  return steps;
}

absl::StatusOr<ByteRange> NeededBytes(const ImageInfo& info, const EntryView& entries, const Draw& draw) {
  std::vector<Stage> stages;
  HEADRACE_ASSIGN_OR_RETURN(const Steps steps, PlanForGpu(info, draw, &stages));
  return SegmentDecoder::NeededBytes(entries, StoredRegion(steps.source, info));
}

Planner::Planner(std::pmr::memory_resource* memory)
    : images(memory), runs(memory), tables(memory), quant(memory), numbers(memory), values(memory), data(memory) {
  for (auto& group : chunks) {
    while (group.size() < kTasks) group.emplace_back(memory);
  }
}

absl::Status Planner::Begin(const Recipe& recipe) {
  images.clear();
  runs.clear();
  tables.clear();
  quant.clear();
  numbers.clear();
  for (auto& group : chunks) {
    for (auto& list : group) list.clear();
  }
  // The long ones are a part of the images: as many as were longer in the burst before.
  if (!longest_.empty()) {
    const auto at = longest_.begin() + static_cast<ptrdiff_t>(longest_.size() * kShortPercent / 100);
    std::nth_element(longest_.begin(), at, longest_.end());
    long_bytes_ = *at;
    longest_.clear();
  }
  data.assign(16, 0);  // no byte has number 0
  num_blocks = num_samples = num_words = 0;
  specs_.clear();
  ++burst_;
  HEADRACE_ASSIGN_OR_RETURN(const auto size, recipe.OutputSize());
  const PackPlan plan = MakePackPlan(recipe);
  values.resize(3 * 256);
  for (size_t i = 0; i < values.size(); ++i) values[i] = ValueOf(plan, i / 256, i % 256);
  output.element = ElementOf(recipe.dtype);
  output.channels_last = recipe.memory_format == MemoryFormat::kChannelsLast;
  output.height = static_cast<uint32_t>(size[0]);
  output.width = static_cast<uint32_t>(size[1]);
  return absl::OkStatus();
}

void Planner::TakeBack() {
  ++burst_;  // filters that came with it are gone
  images.resize(before_.images);
  runs.resize(before_.runs);
  tables.resize(before_.tables);
  specs_.resize(before_.tables);
  quant.resize(before_.quant);
  numbers.resize(before_.numbers);
  data.resize(before_.data);
  for (size_t group = 0; group < kGroups; ++group) {
    for (size_t task = 0; task < kTasks; ++task) chunks[group][task].resize(before_.chunks[group][task]);
  }
  num_blocks = before_.blocks;
  num_samples = before_.samples;
  num_words = before_.words;
}

uint64_t Planner::TakeSamples(uint64_t bytes) {
  const uint64_t at = num_samples;
  num_samples += RoundUp(bytes, 16);
  return at;
}

uint32_t Planner::TableOf(const HuffmanSpec& spec) {
  // Either an image has the standard's tables, which came early, or it has its own, perhaps for several components.
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (i == kEarly && specs_.size() > kEarly + kMaxTables) i = specs_.size() - kMaxTables;
    if (specs_[i] == spec) return static_cast<uint32_t>(i);
  }
  specs_.push_back(spec);
  tables.push_back(MakeTable(spec));
  return static_cast<uint32_t>(specs_.size() - 1);
}

uint32_t Planner::QuantOf(const std::array<uint16_t, 64>& table) {
  const size_t last = quant.size() < 256 ? 0 : quant.size() - 256;  // those of the image before
  for (size_t at = last; at < quant.size(); at += 64) {
    if (std::equal(table.begin(), table.end(), quant.begin() + static_cast<ptrdiff_t>(at))) return static_cast<uint32_t>(at / 64);
  }
  quant.insert(quant.end(), table.begin(), table.end());
  return static_cast<uint32_t>(quant.size() / 64 - 1);
}

Axis Planner::AddAxis(Interpolation interpolation, int in, int out, Span window, int origin) {
  Axis axis = {};
  axis.outputs = static_cast<uint32_t>(window.size());
  if (in == out) return axis;
  axis.origin = origin;
  axis.start = static_cast<uint32_t>(numbers.size());
  if (interpolation == Interpolation::kNearest) {
    ComputeNearest(in, out, window, &nearest_);
    numbers.insert(numbers.end(), nearest_.begin(), nearest_.end());
    axis.weights = static_cast<uint32_t>(numbers.size());
    numbers.insert(numbers.end(), axis.outputs, 1 << kWeightBits);
    axis.taps = 1;
    return axis;
  }
  if (filters_.size() > kMaxFilters) filters_.clear();
  Filter& filter = filters_[{static_cast<int>(interpolation), in, out, window.begin, window.end}];
  if (filter.axis.taps == 0) ComputeFilter(interpolation, in, out, window, &filter.axis);
  if (filter.burst != burst_) {
    filter.burst = burst_;
    filter.at = axis.start;
    numbers.insert(numbers.end(), filter.axis.start.begin(), filter.axis.start.end());
    numbers.insert(numbers.end(), filter.axis.weights.begin(), filter.axis.weights.end());
  }
  axis.start = filter.at;
  axis.weights = filter.at + axis.outputs;
  axis.taps = static_cast<uint32_t>(filter.axis.taps);
  return axis;
}

void Planner::AddTables(const JpegFrame& frame, Image* image) {
  std::fill(std::begin(image->tables), std::end(image->tables), UINT32_MAX);
  for (int c = 0; c < frame.num_components; ++c) {
    const JpegComponent& from = frame.components[static_cast<size_t>(c)];
    Component& to = image->components[c];
    to.dc = from.dc;
    to.ac = static_cast<uint8_t>(4 + from.ac);
    image->tables[to.dc] = TableOf(frame.dc[from.dc]);
    image->tables[to.ac] = TableOf(frame.ac[from.ac]);
    to.quant = QuantOf(frame.quant[from.quant]);
  }
}

void Planner::AddPlanes(const JpegFrame& frame, const RegionPlan& plan, Image* image) {
  const auto mcus = static_cast<uint32_t>(plan.last_mcu - plan.first_mcu + 1);
  const auto rows = static_cast<uint32_t>(plan.last_row - plan.first_row + 1);
  for (int c = 0; c < frame.num_components; ++c) {
    const JpegComponent& from = frame.components[static_cast<size_t>(c)];
    const ComponentPlan& part = plan.components[static_cast<size_t>(c)];
    Component& to = image->components[c];
    to.h = from.h;
    to.v = from.v;
    to.upsampling = part.upsampling;
    to.h_expand = static_cast<uint8_t>(part.h_expand);
    to.v_expand = static_cast<uint8_t>(part.v_expand);
    to.width = part.width;
    to.height = part.height;
    to.blocks_per_row = mcus * from.h;
    to.blocks = to.blocks_per_row * rows * from.v;
    to.coefficients = static_cast<uint32_t>(num_blocks);
    num_blocks += to.blocks;
    image->num_blocks += to.blocks;
    to.first_column = plan.first_mcu * from.h * 8;
    to.first_line = plan.first_row * from.v * 8;
    to.stride = to.blocks_per_row * 8;
    to.plane = TakeSamples(uint64_t{64} * to.blocks);
  }
}

// Of a row's runs the bytes lie together; here they are numbered as in the scan, `first` is the first one at hand.
absl::Status Planner::BringRow(size_t first_run, const uint8_t* scan, uint64_t first) {
  const uint32_t begin = runs[first_run].begin, end = runs.back().end;
  const auto moved = static_cast<uint32_t>(data.size()) - begin;
  for (size_t i = first_run; i < runs.size(); ++i) {
    Run& run = runs[i];
    if (run.begin < begin || run.end > end) return absl::DataLossError("entry data: out of order");
    run.begin += moved;
    run.end += moved;
    if (run.next != 0) run.next += moved;
  }
  data.insert(data.end(), scan + (begin - first), scan + (end - first));
  return absl::OkStatus();
}

absl::Status Planner::AddRuns(const GpuSample& sample, const RegionPlan& plan, const Rect& region) {
  const EntryView& entries = *sample.entries;
  const JpegFrame& frame = *sample.frame;
  const uint64_t skipped = frame.scan_offset - std::min<uint64_t>(sample.begin, frame.scan_offset);
  const uint64_t first = sample.begin - std::min<uint64_t>(sample.begin, frame.scan_offset);
  const uint64_t size = sample.bytes.size() - std::min<uint64_t>(skipped, sample.bytes.size());
  HEADRACE_RETURN_IF_ERROR(SegmentDecoder::CheckEnd(entries, sample.bytes, sample.begin, region));
  const int interval = entries.interval(), per_row = frame.mcus_per_row();
  for (int row = plan.first_row; row <= plan.last_row; ++row) {
    const size_t first_run = runs.size();
    for (int segment = plan.first_mcu / interval; segment <= plan.last_mcu / interval; ++segment) {
      const bool row_ends = segment + 1 == entries.segments_per_row();
      const bool has_next = !row_ends || row + 1 < entries.mcu_rows();
      EntryPoint begin, next;
      if (!entries.Point(row, segment, &begin) ||
          (has_next && !entries.Point(row + row_ends, row_ends ? 0 : segment + 1, &next))) {
        return absl::DataLossError("entry data: a number outside the scan");
      }
      const uint32_t end = has_next ? std::min(next.byte + 1, entries.scan_bytes()) : entries.scan_bytes();
      if (end < begin.byte || begin.byte < first || end > first + size) return absl::DataLossError("entry data: out of order");
      Run run = {};
      run.row = static_cast<uint16_t>(row);
      run.mcu = static_cast<uint16_t>(segment * interval);
      run.count = static_cast<uint16_t>(std::min(interval, per_row - run.mcu));
      run.decoded = static_cast<uint16_t>(std::min<int>(run.count, plan.last_mcu + 1 - run.mcu));
      // Every symbol takes at most 31 bits and passes a coefficient; core/decode/segment reads no more either.
      if (end - begin.byte > (uint64_t{run.count} * static_cast<uint64_t>(frame.blocks_per_mcu()) * 64 + 2) * 31 / 8) {
        return absl::DataLossError("entry data: a segment longer than its MCUs can be");
      }
      run.begin = begin.byte;
      run.end = end;
      run.words = static_cast<uint32_t>(num_words);
      num_words += (end - begin.byte + 7) / 4;  // and a word of zeros
      run.bit = begin.bit;
      run.next = has_next ? next.byte : 0;
      run.next_bit = next.bit;
      std::copy(begin.dc.begin(), begin.dc.end(), run.dc);
      std::copy(next.dc.begin(), next.dc.end(), run.next_dc);
      runs.push_back(run);
    }
    HEADRACE_RETURN_IF_ERROR(BringRow(first_run, sample.bytes.data() + skipped, first));
  }
  data.resize(RoundUp(data.size() + 16, 16));
  return absl::OkStatus();
}

absl::Status Planner::Add(const GpuSample& sample) {
  const JpegFrame& frame = *sample.frame;
  if (frame.width != sample.info->width || frame.height != sample.info->height) {
    return absl::DataLossError("entry data: of an image of another size");
  }
  HEADRACE_ASSIGN_OR_RETURN(const Steps steps, PlanForGpu(*sample.info, *sample.draw, &stages_));
  const Rect region = StoredRegion(steps.source, *sample.info);
  HEADRACE_ASSIGN_OR_RETURN(const RegionPlan plan, PlanRegion(frame, region));
  if (data.size() + sample.bytes.size() > UINT32_MAX / 2) return absl::UnimplementedError("too many bytes in one batch");
  before_ = {images.size(), runs.size(), tables.size(), quant.size(), numbers.size(), data.size(), {}, num_blocks, num_samples, num_words};
  for (size_t group = 0; group < kGroups; ++group) {
    for (size_t task = 0; task < kTasks; ++task) before_.chunks[group][task] = chunks[group][task].size();
  }
  const size_t first_run = runs.size();
  if (absl::Status status = AddRuns(sample, plan, region); !status.ok()) {
    TakeBack();
    return status;
  }
  uint32_t longest = 0;
  for (size_t run = first_run; run < runs.size(); ++run) longest = std::max(longest, runs[run].end - runs[run].begin);
  longest_.push_back(longest);
  auto& lists = chunks[longest < long_bytes_];

  const auto number = static_cast<uint32_t>(images.size());
  Image image = {};
  image.num_components = frame.num_components;
  image.color = frame.color;
  AddTables(frame, &image);
  AddPlanes(frame, plan, &image);
  image.first_run = static_cast<uint32_t>(first_run);
  image.num_runs = static_cast<uint32_t>(runs.size() - first_run);
  image.restart_interval = frame.restart_interval;
  image.mcus_per_row = static_cast<uint32_t>(frame.mcus_per_row());
  image.first_mcu = static_cast<uint32_t>(plan.first_mcu);
  image.first_row = static_cast<uint32_t>(plan.first_row);
  image.top = steps.source.top;
  image.left = steps.source.left;
  image.height = steps.source.height;
  image.width = steps.source.width;
  image.stored_height = frame.height;
  image.stored_width = frame.width;
  const Turn turn = TurnOf(sample.info->orientation);
  image.flip_rows = turn.flip_rows;
  image.flip_columns = turn.flip_columns;
  image.transpose = turn.transpose;
  image.mirrored = steps.mirrored;
  image.upside_down = steps.upside_down;
  image.sample = sample.place;
  image.pixel_stride = static_cast<uint32_t>(RoundUp(static_cast<uint64_t>(image.width), 16));
  image.pixels = TakeSamples(uint64_t{3} * image.pixel_stride * static_cast<uint64_t>(image.height));
  if (steps.resize != nullptr) {
    const ResizeJob job = MakeResizeJob(*steps.resize);
    const Rect source = ResizeSource(job);
    image.vertical_first = VerticalFirst(job);
    image.horizontal = AddAxis(job.interpolation, job.in_width, job.out_width,
                               {job.window.left, job.window.left + job.window.width}, source.left);
    image.vertical = AddAxis(job.interpolation, job.in_height, job.out_height,
                             {job.window.top, job.window.top + job.window.height}, source.top);
  }
  if (image.horizontal.taps != 0 && image.vertical.taps != 0) {
    const uint32_t width = image.vertical_first ? static_cast<uint32_t>(image.width) : image.horizontal.outputs;
    image.between_height = image.vertical_first ? image.vertical.outputs : static_cast<uint32_t>(image.height);
    image.between_stride = static_cast<uint32_t>(RoundUp(width, 16));
    image.between = TakeSamples(uint64_t{3} * image.between_stride * image.between_height);
    AddChunks(number, uint64_t{width} * image.between_height, kPixelsPerChunk, &lists[kFirstPass]);
  }
  AddChunks(number, image.num_runs, kRunsPerChunk, &lists[kEntropy]);
  AddChunks(number, image.num_blocks, kBlocksPerChunk, &lists[kBlocks]);
  AddChunks(number, (static_cast<uint64_t>(image.width) + 3) / 4 * static_cast<uint64_t>(image.height), kPixelsPerChunk / 4, &lists[kPixels]);
  AddChunks(number, static_cast<uint64_t>(steps.width) * static_cast<uint64_t>(steps.height), kPixelsPerChunk, &lists[kLastPass]);
  images.push_back(image);
  return absl::OkStatus();
}

}  // namespace headrace::gpu
