// The render tool's samples as batches of the GPU engine, each alone in its batch.
#pragma once

#include <string>
#include <vector>

#include "core/augment/render.h"
#include "tests/gpu/batch_maker.h"
#include "tests/support/indexed_jpeg.h"

namespace headrace::testing {

// As render_tool::RenderSample: "gpu", or "cpu" for what `maker` leaves to it.
inline absl::StatusOr<const char*> RenderInBatch(BatchMaker* maker, const std::vector<uint8_t>& file, const ImageInfo& info,
                                                 const Recipe& recipe, const Draw& draw, std::vector<uint8_t>* out,
                                                 std::string* warning) {
  IndexedJpeg image;
  std::vector<uint32_t> left;
  const auto make = [&]() -> absl::Status {
    if (!image.Make(file, 8)) return absl::UnimplementedError("no entry points");
    const EntryView view = image.View();
    HEADRACE_RETURN_IF_ERROR(maker->Begin(recipe));
    HEADRACE_ASSIGN_OR_RETURN(const ByteRange range, maker->Plan({&info, &view, &image.frame, &draw, 0}));
    const size_t bytes = std::min<uint64_t>(range.end, file.size()) - range.begin;
    std::copy_n(file.begin() + static_cast<ptrdiff_t>(range.begin), bytes, maker->Stage(range.end - range.begin));
    HEADRACE_RETURN_IF_ERROR(maker->AddStaged(bytes));
    return maker->Make(out, &left);
  };
  const absl::Status made = make();
  if (made.ok() && left.empty()) return "gpu";
  if (!made.ok() && !absl::IsUnimplemented(made) && !absl::IsDataLoss(made)) return made;
  static SampleRenderer renderer;
  HEADRACE_RETURN_IF_ERROR(renderer.Render(file, info, recipe, draw, out->data(), warning));
  return "cpu";
}

}  // namespace headrace::testing
