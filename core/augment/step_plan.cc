#include "core/augment/step_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/augment/filter.h"

namespace headrace {
namespace {

// Above Pillow's own limit for files that it opens.
constexpr int64_t kMaxHeldPixels = int64_t{1} << 28;

// The part of [0, size) that [begin, begin + length) covers, at least one pixel: a crop wholly
// outside needs none, but decoders like to decode something.
Span Clamped(int begin, int length, int size) {
  const int first = std::clamp(begin, 0, size - 1);
  return {first, std::max(std::min(begin + length, size), first + 1)};
}

Rect SourceOf(const Stage& stage) {
  if (std::holds_alternative<CropStep>(*stage.step)) {
    const Rect window = CropWindow(stage);
    const Span rows = Clamped(window.top, window.height, stage.in_height);
    const Span columns = Clamped(window.left, window.width, stage.in_width);
    return {rows.begin, columns.begin, rows.size(), columns.size()};
  }
  if (std::holds_alternative<ResizeStep>(*stage.step)) return ResizeSource(MakeResizeJob(stage));
  if (std::holds_alternative<HorizontalFlipStep>(*stage.step))
    return FlippedHorizontally(stage.window, stage.in_width);
  return FlippedVertically(stage.window, stage.in_height);
}

}  // namespace

absl::Status PlanSteps(const std::vector<Step>& steps, int height, int width,
                       std::vector<Stage>* stages, Rect* source) {
  stages->resize(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    Stage& stage = (*stages)[i];
    stage = {&steps[i], height, width, height, width, Rect{}};
    if (const auto* crop = std::get_if<CropStep>(&steps[i])) {
      stage.out_height = crop->rect.height;
      stage.out_width = crop->rect.width;
    } else if (const auto* resize = std::get_if<ResizeStep>(&steps[i])) {
      stage.out_height = resize->height;
      stage.out_width = resize->width;
    }
    height = stage.out_height;
    width = stage.out_width;
  }
  Rect window = {0, 0, height, width};
  for (size_t i = steps.size(); i-- > 0;) {
    Stage& stage = (*stages)[i];
    if (int64_t{window.height} * window.width > kMaxHeldPixels) {
      return absl::InvalidArgumentError(absl::StrCat("step ", i, " would make an image of ",
                                                     window.height, " x ", window.width, " px"));
    }
    stage.window = window;
    window = SourceOf(stage);
  }
  *source = window;
  return absl::OkStatus();
}

Rect FlippedHorizontally(const Rect& rect, int width) {
  return {rect.top, width - rect.left - rect.width, rect.height, rect.width};
}

Rect FlippedVertically(const Rect& rect, int height) {
  return {height - rect.top - rect.height, rect.left, rect.height, rect.width};
}

Rect CropWindow(const Stage& stage) {
  const Rect& crop = std::get<CropStep>(*stage.step).rect;
  return {stage.window.top + crop.top, stage.window.left + crop.left, stage.window.height,
          stage.window.width};
}

bool IsInside(const Rect& rect, int height, int width) {
  return rect.top >= 0 && rect.left >= 0 && rect.top + rect.height <= height &&
         rect.left + rect.width <= width;
}

bool ChangesSize(const Stage& stage) {
  return std::holds_alternative<ResizeStep>(*stage.step) &&
         (stage.in_height != stage.out_height || stage.in_width != stage.out_width);
}

bool FillsOutside(const Stage& stage) {
  return std::holds_alternative<CropStep>(*stage.step) && !IsInside(CropWindow(stage), stage.in_height, stage.in_width);
}

bool PassesPixels(const Stage& stage) {
  if (std::holds_alternative<CropStep>(*stage.step)) return !FillsOutside(stage);
  return std::holds_alternative<ResizeStep>(*stage.step) && !ChangesSize(stage);
}

size_t LastResize(const std::vector<Stage>& stages) {
  for (size_t i = stages.size(); i-- > 0;) {
    if (ChangesSize(stages[i])) return i;
    if (FillsOutside(stages[i])) break;
  }
  return stages.size();
}

ResizeJob MakeResizeJob(const Stage& stage) {
  return {.in_height = stage.in_height,
          .in_width = stage.in_width,
          .out_height = stage.out_height,
          .out_width = stage.out_width,
          .interpolation = std::get<ResizeStep>(*stage.step).interpolation,
          .window = stage.window};
}

}  // namespace headrace
