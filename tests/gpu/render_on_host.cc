#include "tests/gpu/host_maker.h"
#include "tests/gpu/render_in_batch.h"
#include "tests/support/render_tool.h"

namespace headrace::render_tool {

absl::StatusOr<const char*> RenderSample(const std::vector<uint8_t>& file, const ImageInfo& info, const Recipe& recipe,
                                         const Draw& draw, std::vector<uint8_t>* out, std::string* warning) {
  static testing::HostMaker maker;
  return testing::RenderInBatch(&maker, file, info, recipe, draw, out, warning);
}

}  // namespace headrace::render_tool
