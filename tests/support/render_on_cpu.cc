#include "core/augment/render.h"
#include "tests/support/render_tool.h"

namespace headrace::render_tool {

absl::StatusOr<const char*> RenderSample(const std::vector<uint8_t>& file, const ImageInfo& info, const Recipe& recipe,
                                         const Draw& draw, std::vector<uint8_t>* out, std::string* warning) {
  // Kept between requests, as a decoding thread does: no sample may see anything of the one before.
  static SampleRenderer renderer;
  HEADRACE_RETURN_IF_ERROR(renderer.Render(file, info, recipe, draw, out->data(), warning));
  return "cpu";
}

}  // namespace headrace::render_tool
