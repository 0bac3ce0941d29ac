#include "core/augment/gpu/planner.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/decode/entry/entry_word.h"
#include "core/decode/image_decoder.h"
#include "core/decode/segment/segment_decoder.h"

namespace headrace::gpu {
namespace {

uint64_t RoundUp(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

void AddChunks(uint32_t image, uint64_t total, uint32_t size, std::pmr::vector<Chunk>* chunks) {
  for (uint64_t first = 0; first < total; first += size) chunks->push_back({image, static_cast<uint32_t>(first)});
}

constexpr size_t kEarly = 16;  // tables
constexpr size_t kMaxFilterBytes = size_t{8} << 20;  // some 1,500 of photos
constexpr size_t kShortPercent = 85;  // of the images: then both groups end about together (70: 4 % later, 92: as late)

// The kernel whose weights the GPU makes, and its support; 0: they are brought.
double MadeSupport(Interpolation interpolation, AxisKernel* kernel) {
  switch (interpolation) {
    case Interpolation::kBox:
      *kernel = AxisKernel::kBox;
      return Box::kSupport;
    case Interpolation::kBilinear:
      *kernel = AxisKernel::kBilinear;
      return Bilinear::kSupport;
    case Interpolation::kBicubic:
      *kernel = AxisKernel::kBicubic;
      return Bicubic::kSupport;
    default:
      return 0;
  }
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

Planner::Planner(std::pmr::memory_resource* memory)
    : images(memory), rows(memory), entries(memory), specs(memory), quant(memory), numbers(memory), values(memory), staged(memory) {
  for (auto& group : chunks) {
    while (group.size() < kTasks) group.emplace_back(memory);
  }
}

absl::Status Planner::Begin(const Recipe& recipe) {
  images.clear();
  rows.clear();
  entries.clear();
  specs.clear();
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
  staged.Shrink(kept_ = 0);
  num_runs = num_blocks = num_samples = num_words = num_made_numbers = 0;
  hints_.clear();
  sets_.clear();
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

Planner::Sizes Planner::Now() const {
  Sizes now = {images.size(), rows.size(), entries.size(), specs.size(), quant.size(), numbers.size(), {},
               staged.size(), num_runs, num_blocks, num_samples, num_words, num_made_numbers};
  for (size_t group = 0; group < kGroups; ++group) {
    for (size_t task = 0; task < kTasks; ++task) now.chunks[group][task] = chunks[group][task].size();
  }
  return now;
}

void Planner::TakeBack() {
  ++burst_;  // filters that came with it are gone
  sets_.clear();
  images.resize(before_.images);
  rows.resize(before_.rows);
  entries.resize(before_.entries);
  specs.resize(before_.specs);
  hints_.resize(before_.specs);
  quant.resize(before_.quant);
  numbers.resize(before_.numbers);
  for (size_t group = 0; group < kGroups; ++group) {
    for (size_t task = 0; task < kTasks; ++task) chunks[group][task].resize(before_.chunks[group][task]);
  }
  staged.Shrink(kept_ = before_.staged);
  num_runs = before_.runs;
  num_blocks = before_.blocks;
  num_samples = before_.samples;
  num_words = before_.words;
  num_made_numbers = before_.made_numbers;
}

uint64_t Planner::TakeSamples(uint64_t bytes) {
  const uint64_t at = num_samples;
  num_samples += RoundUp(bytes, 16);
  return at;
}

uint32_t Planner::TableOf(const HuffmanSpec& spec) {
  uint64_t words[3];
  std::memcpy(words, spec.counts.data(), 16);
  std::memcpy(words + 2, spec.symbols.data() + 8, 8);
  const uint64_t hint = words[0] ^ words[1] * 3 ^ words[2] * 5;
  const auto equal = [&](const HuffmanSymbols& other) {
    return std::memcmp(other.counts, spec.counts.data(), 16) == 0 && std::memcmp(other.symbols, spec.symbols.data(), 256) == 0;
  };
  // Either an image has the standard's tables, which came early, or it has its own, perhaps for several components.
  for (size_t i = 0; i < specs.size(); ++i) {
    if (i == kEarly && specs.size() > kEarly + kMaxTables) i = specs.size() - kMaxTables;
    if (hints_[i] == hint && equal(specs[i])) return static_cast<uint32_t>(i);
  }
  HuffmanSymbols& added = specs.emplace_back();
  std::copy(spec.counts.begin(), spec.counts.end(), added.counts);
  std::copy(spec.symbols.begin(), spec.symbols.end(), added.symbols);
  hints_.push_back(hint);
  return static_cast<uint32_t>(specs.size() - 1);
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
  if (const double support = MadeSupport(interpolation, &axis.kernel); support > 0) {
    axis.in = in;
    axis.out = out;
    axis.first = window.begin;
    axis.taps = static_cast<uint32_t>(Placement(support, in, out).MostTaps());
    axis.start = static_cast<uint32_t>(num_made_numbers);
    axis.weights = axis.start + axis.outputs;
    num_made_numbers += uint64_t{axis.outputs} * (1 + axis.taps);
    return axis;
  }
  if (filter_bytes_ > kMaxFilterBytes) {
    filters_.clear();
    filter_bytes_ = 0;
  }
  Filter& filter = filters_[{static_cast<int>(interpolation), in, out, window.begin, window.end}];
  if (filter.axis.taps == 0) {
    ComputeFilter(interpolation, in, out, window, &filter.axis);
    filter_bytes_ += (filter.axis.start.size() + filter.axis.weights.size()) * sizeof(int32_t);
  }
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
  // Images of one table set may use different ones of its tables.
  TableSet own;
  TableSet& set = planned_.sample.tables_number != 0 ? sets_[planned_.sample.tables_number] : own;
  const auto known = [](uint32_t& number, const auto& find) { return number != UINT32_MAX ? number : number = find(); };
  const auto add = [image](uint32_t table) {
    const auto end = image->tables + image->num_tables, found = std::find(image->tables, end, table);
    if (found == end) image->tables[image->num_tables++] = table;
    return static_cast<uint8_t>(found - image->tables);
  };
  for (int c = 0; c < frame.num_components; ++c) {
    const JpegComponent& from = frame.components[static_cast<size_t>(c)];
    Component& to = image->components[c];
    to.dc = add(known(set.dc[from.dc], [&] { return TableOf(frame.dc[from.dc]); }));
    to.ac = add(known(set.ac[from.ac], [&] { return TableOf(frame.ac[from.ac]); }));
    to.quant = known(set.quant[from.quant], [&] { return QuantOf(frame.quant[from.quant]); });
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

absl::Status Planner::AddRows(Image* image, uint32_t* longest) {
  const EntryView& view = *planned_.sample.entries;
  const RegionPlan& plan = planned_.plan;
  const int first_segment = plan.first_mcu / view.interval(), last_segment = plan.last_mcu / view.interval();
  const auto runs = static_cast<uint32_t>(last_segment - first_segment + 1);
  const auto words = static_cast<size_t>(view.words_per_entry());
  image->words_per_entry = static_cast<uint32_t>(words);
  image->interval = static_cast<uint32_t>(view.interval());
  image->segments_per_row = static_cast<uint32_t>(view.segments_per_row());
  image->first_segment = static_cast<uint32_t>(first_segment);
  image->runs_per_row = runs;
  image->scan_bytes = view.scan_bytes();
  image->max_run_bytes = (image->interval * static_cast<uint32_t>(planned_.sample.frame->blocks_per_mcu()) * 64 + 2) * 31 / 8;
  image->entries = static_cast<uint32_t>(entries.size());
  image->rows = static_cast<uint32_t>(rows.size());
  image->first_run = static_cast<uint32_t>(num_runs);
  image->num_runs = runs * static_cast<uint32_t>(plan.last_row - plan.first_row + 1);
  num_runs += image->num_runs;

  // Behind the last row's last entry lies the next row's first one, unless it is the image's last.
  const size_t row_words = words * static_cast<size_t>(view.segments_per_row()), at = entries.size();
  const size_t count = row_words * static_cast<size_t>(plan.last_row - plan.first_row + 1);
  entries.resize(at + count + words);
  std::memcpy(entries.data() + at, view.Words(plan.first_row, 0), (count + (plan.last_row + 1 < view.mcu_rows() ? words : 0)) * sizeof(uint64_t));

  const bool row_ends = last_segment + 1 == view.segments_per_row();
  const uint64_t scan = planned_.sample.frame->scan_offset, scan_bytes = view.scan_bytes();
  const uint64_t* row_entries = entries.data() + at;
  uint64_t base = view.RowByte(plan.first_row);
  *longest = 0;
  for (int line = plan.first_row; line <= plan.last_row; ++line, row_entries += row_words) {
    const bool is_last = line + 1 == view.mcu_rows();
    const uint64_t next_base = is_last ? 0 : view.RowByte(line + 1);
    const uint64_t* const first = row_entries + words * static_cast<size_t>(first_segment);
    const uint64_t* const end_entry = row_entries + words * static_cast<size_t>(last_segment + 1);
    const uint64_t begin = base + EntryByte(*first);
    // Its first byte may be shared.
    const uint64_t end = row_ends && is_last ? scan_bytes : std::min((row_ends ? next_base : base) + EntryByte(*end_entry) + 1, scan_bytes);
    if (end < begin || begin + scan < planned_.range.begin || end + scan > planned_.range.end || std::max(base, next_base) > scan_bytes) {
      return absl::DataLossError("entry data: out of order");
    }
    rows.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end), static_cast<uint32_t>(base), static_cast<uint32_t>(next_base),
                    static_cast<uint32_t>(num_words)});
    num_words += (end - begin) / 4 + 3 * runs + 1;  // a word of zeros behind each run, and what does not fill one
    for (const uint64_t* entry = first; entry + words < end_entry; entry += words) {
      *longest = std::max(*longest, EntryByte(entry[words]) - EntryByte(*entry));  // a hint, so that nonsense is welcome
    }
    base = next_base;
  }
  return absl::OkStatus();
}

absl::StatusOr<ByteRange> Planner::Plan(const GpuSample& sample) {
  const JpegFrame& frame = *sample.frame;
  if (frame.width != sample.info->width || frame.height != sample.info->height) {
    return absl::DataLossError("entry data: of an image of another size");
  }
  planned_.sample = sample;
  HEADRACE_ASSIGN_OR_RETURN(planned_.steps, PlanForGpu(*sample.info, *sample.draw, &stages_));
  planned_.region = StoredRegion(planned_.steps.source, *sample.info);
  HEADRACE_ASSIGN_OR_RETURN(planned_.plan, PlanRegion(frame, planned_.region));
  HEADRACE_ASSIGN_OR_RETURN(planned_.range, SegmentDecoder::NeededBytes(*sample.entries, planned_.plan, planned_.region));
  if (sample.entries->scan_bytes() > INT32_MAX) return absl::UnimplementedError("too many bytes in one image");
  staged.Shrink(kept_);  // of a sample before whose bytes could not be read
  before_ = Now();
  return planned_.range;
}

uint8_t* Planner::Stage(uint64_t bytes) {
  staged.Shrink(before_.staged);
  return staged.Grow(RoundUp(bytes + 16, 16));
}

absl::Status Planner::AddStaged(uint64_t bytes) {
  Image image = {};
  image.bytes = before_.staged;
  const absl::Status status = AddImage(bytes, &image);
  kept_ = staged.size();
  return status;
}

absl::Status Planner::AddMapped(const uint8_t* bytes, uint64_t size) {
  Image image = {};
  image.is_mapped = true;
  image.bytes = reinterpret_cast<uint64_t>(bytes);
  return AddImage(size, &image);
}

absl::Status Planner::AddImage(uint64_t bytes, Image* image) {
  planned_.range.end = std::min(planned_.range.end, planned_.range.begin + bytes);
  const absl::Status status = FillImage(image);
  if (status.ok()) {
    images.push_back(*image);
  } else {
    TakeBack();
  }
  return status;
}

absl::Status Planner::FillImage(Image* filled) {
  const GpuSample& sample = planned_.sample;
  const JpegFrame& frame = *sample.frame;
  const Steps& steps = planned_.steps;
  const RegionPlan& plan = planned_.plan;
  Image& image = *filled;
  if (TouchesEnd(frame, planned_.region)) {
    const uint64_t end = uint64_t{frame.scan_offset} + sample.entries->scan_bytes();
    if (end < planned_.range.begin || end >= planned_.range.end) return absl::DataLossError("the image has no end");
    image.end = static_cast<uint32_t>(end - planned_.range.begin);
    image.end_bytes = static_cast<uint32_t>(planned_.range.end - end);
  }
  uint32_t longest;
  HEADRACE_RETURN_IF_ERROR(AddRows(&image, &longest));
  longest_.push_back(longest);
  auto& lists = chunks[longest < long_bytes_ ? 1 + images.size() % 2 : 0];

  const auto number = static_cast<uint32_t>(images.size());
  image.num_components = frame.num_components;
  image.color = frame.color;
  AddTables(frame, &image);
  AddPlanes(frame, plan, &image);
  image.restart_interval = frame.restart_interval;
  image.mcus_per_row = static_cast<uint32_t>(frame.mcus_per_row());
  image.mcu_rows = static_cast<uint32_t>(frame.mcu_rows());
  image.first_mcu = static_cast<uint32_t>(plan.first_mcu);
  image.last_mcu = static_cast<uint32_t>(plan.last_mcu);
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
  const uint64_t pixel_bytes = uint64_t{3} * image.pixel_stride * static_cast<uint64_t>(image.height);
  image.over_coefficients = pixel_bytes <= uint64_t{128} * image.num_blocks;
  image.pixels = image.over_coefficients ? uint64_t{128} * image.components[0].coefficients : TakeSamples(pixel_bytes);
  if (steps.resize != nullptr) {
    const ResizeJob job = MakeResizeJob(*steps.resize);
    const Rect source = ResizeSource(job);
    image.vertical_first = VerticalFirst(job);
    image.horizontal = AddAxis(job.interpolation, job.in_width, job.out_width,
                               {job.window.left, job.window.left + job.window.width}, source.left);
    image.vertical = AddAxis(job.interpolation, job.in_height, job.out_height,
                             {job.window.top, job.window.top + job.window.height}, source.top);
  }
  const auto fours_of = [](uint64_t count) { return (count + 3) / 4; };
  if (image.horizontal.taps != 0 && image.vertical.taps != 0) {
    const uint32_t width = image.vertical_first ? static_cast<uint32_t>(image.width) : image.horizontal.outputs;
    image.between_height = image.vertical_first ? image.vertical.outputs : static_cast<uint32_t>(image.height);
    image.between_stride = static_cast<uint32_t>(RoundUp(width, 16));
    image.between = TakeSamples(uint64_t{3} * image.between_stride * image.between_height);
    const uint64_t fours = image.vertical_first ? fours_of(width) * image.between_height : width * fours_of(image.between_height);
    AddChunks(number, fours, kFoursPerChunk, &lists[kFirstPass]);
  }
  AddChunks(number, image.num_runs, kRunsPerChunk, &lists[kEntropy]);
  AddChunks(number, image.num_blocks, kBlocksPerChunk, &lists[kBlocks]);
  AddChunks(number, fours_of(static_cast<uint64_t>(image.width)) * static_cast<uint64_t>(image.height), kFoursPerChunk, &lists[kPixels]);
  AddChunks(number, fours_of(static_cast<uint64_t>(steps.width)) * static_cast<uint64_t>(steps.height), kFoursPerChunk, &lists[kLastPass]);
  return absl::OkStatus();
}

}  // namespace headrace::gpu
