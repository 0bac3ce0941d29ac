#include <array>
#include <cstring>

#include "core/augment/draw.h"
#include "core/augment/pack.h"
#include "core/augment/recipe.h"
#include "core/augment/render.h"
#include "core/augment/resize.h"
#include "core/augment/resize_kernels.h"
#include "core/augment/simd_target.h"
#include "core/decode/probe.h"
#include "tests/support/render_tool.h"

namespace headrace::render_tool {
namespace {

using nlohmann::json;

constexpr const char* kInterpolations[] = {"nearest", "bilinear", "bicubic",
                                           "lanczos", "box",      "hamming"};

json ToJson(const Rect& rect) { return {rect.top, rect.left, rect.height, rect.width}; }

json ToJson(const Step& step) {
  if (const auto* crop = std::get_if<CropStep>(&step)) {
    return {{"step", "crop"}, {"rect", ToJson(crop->rect)}, {"fill", crop->fill}};
  }
  if (const auto* resize = std::get_if<ResizeStep>(&step)) {
    return {{"step", "resize"},
            {"size", {resize->height, resize->width}},
            {"interpolation", kInterpolations[static_cast<int>(resize->interpolation)]}};
  }
  return {{"step", std::holds_alternative<HorizontalFlipStep>(step) ? "hflip" : "vflip"}};
}

json ToJson(const Draw& draw) {
  json answer = {{"steps", json::array()}, {"draw_error", draw.error}};
  for (const Step& step : draw.steps) answer["steps"].push_back(ToJson(step));
  if (draw.has_crop) answer["crop"] = ToJson(draw.crop);
  if (draw.has_flip) answer["flip"] = draw.flip;
  if (draw.has_vflip) answer["vflip"] = draw.vflip;
  return answer;
}

Draw DrawFor(const json& request, const Recipe& recipe, int width, int height) {
  Draw draw;
  DrawSample(recipe, request.at("seed").get<uint64_t>(), request.at("epoch").get<uint64_t>(),
             request.at("position").get<uint64_t>(), width, height, &draw);
  return draw;
}

absl::StatusOr<json> OutputSizeOf(const json& request) {
  HEADRACE_ASSIGN_OR_RETURN(const Recipe recipe, ParseRecipe(request.at("recipe").dump()));
  HEADRACE_ASSIGN_OR_RETURN(const auto size, recipe.OutputSize());
  return json{{"height", size[0]}, {"width", size[1]}};
}

absl::StatusOr<json> DrawOnly(const json& request) {
  HEADRACE_ASSIGN_OR_RETURN(const Recipe recipe, ParseRecipe(request.at("recipe").dump()));
  return ToJson(DrawFor(request, recipe, request.at("width"), request.at("height")));
}

absl::StatusOr<json> Render(const json& request) {
  HEADRACE_ASSIGN_OR_RETURN(const Recipe recipe, ParseRecipe(request.at("recipe").dump()));
  HEADRACE_ASSIGN_OR_RETURN(const auto size, recipe.OutputSize());
  HEADRACE_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, ReadInput(request));
  HEADRACE_ASSIGN_OR_RETURN(const ImageInfo info, ProbeImage(bytes));
  const Draw draw = DrawFor(request, recipe, static_cast<int>(info.oriented_width()),
                            static_cast<int>(info.oriented_height()));
  std::vector<uint8_t> out(static_cast<size_t>(size[0]) * static_cast<size_t>(size[1]) * 3 *
                               static_cast<size_t>(DTypeBytes(recipe.dtype)),
                           0xA5);
  std::string warning;
  HEADRACE_ASSIGN_OR_RETURN(const char* const engine, RenderSample(bytes, info, recipe, draw, &out, &warning));
  HEADRACE_RETURN_IF_ERROR(WriteOutput(request, out.data(), out.size()));
  json answer = ToJson(draw);
  answer["height"] = size[0];
  answer["width"] = size[1];
  answer["warning"] = warning;
  answer["engine"] = engine;
  return answer;
}

// Raw RGB bytes through the resize alone.
absl::StatusOr<json> ResizeRaw(const json& request) {
  HEADRACE_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, ReadInput(request));
  ResizeJob job;
  job.in_height = request.at("in").at(0);
  job.in_width = request.at("in").at(1);
  job.out_height = request.at("size").at(0);
  job.out_width = request.at("size").at(1);
  job.mirrored = request.value("mirrored", false);
  job.window = {0, 0, job.out_height, job.out_width};
  if (request.contains("window")) {
    const json& edges = request.at("window");
    job.window = {edges.at(0), edges.at(1), edges.at(2), edges.at(3)};
  }
  for (int i = 0; i < 6; ++i) {
    if (request.at("interpolation") == kInterpolations[i])
      job.interpolation = static_cast<Interpolation>(i);
  }
  // Only what the window needs is given.
  const Rect source = ResizeSource(job);
  RgbImage image;
  image.Resize(source.width, source.height);
  for (int y = 0; y < source.height; ++y) {
    const size_t from =
        3 * (static_cast<size_t>(source.top + y) * static_cast<size_t>(job.in_width) +
             static_cast<size_t>(source.left));
    std::memcpy(image.row(y), bytes.data() + from, image.stride());
  }
  static Resizer resizer;
  RgbImage out;
  out.Resize(job.window.width, job.window.height);
  resizer.Run(job, image, source, [&](int row, const uint8_t* planes) {
    ActiveResizeKernels().merge_row(planes, PlaneStride(job.window.width), job.window.width, out.row(row));
  });
  HEADRACE_RETURN_IF_ERROR(
      WriteOutput(request, out.pixels.data(), out.stride() * static_cast<size_t>(out.height)));
  return json{{"source", ToJson(source)}, {"target", SimdTarget()}};
}

}  // namespace

void AddRenderCommands(CommandTable* table) {
  (*table)["output_size"] = &OutputSizeOf;
  (*table)["draw"] = &DrawOnly;
  (*table)["render"] = &Render;
  (*table)["resize"] = &ResizeRaw;
}

}  // namespace headrace::render_tool
