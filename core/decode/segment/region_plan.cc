#include "core/decode/segment/region_plan.h"

#include <algorithm>

namespace headrace {
namespace {

int CeilDivide(int a, int b) { return (a + b - 1) / b; }

Upsampling Choose(int h_expand, int v_expand, int width) {
  if (h_expand == 1 && v_expand == 1) return Upsampling::kNone;
  if (h_expand == 2 && v_expand == 1 && width > 2) return Upsampling::kFancyH2V1;
  if (h_expand == 2 && v_expand == 2 && width > 2) return Upsampling::kFancyH2V2;
  if (h_expand == 1 && v_expand == 2) return Upsampling::kFancyH1V2;
  return Upsampling::kReplicate;
}

}  // namespace

absl::StatusOr<RegionPlan> PlanRegion(const JpegShape& frame, const Rect& region) {
  RegionPlan plan;
  plan.first_row = plan.first_mcu = 1 << 30;
  for (int c = 0; c < frame.num_components; ++c) {
    const JpegComponent& component = frame.components[c];
    ComponentPlan& part = plan.components[c];
    if (frame.max_h() % component.h != 0 || frame.max_v() % component.v != 0) {
      return absl::UnimplementedError("sampling factors that do not divide the largest");
    }
    part.h_expand = frame.max_h() / component.h;
    part.v_expand = frame.max_v() / component.v;
    part.width = CeilDivide(frame.width * component.h, frame.max_h());
    part.height = CeilDivide(frame.height * component.v, frame.max_v());
    part.upsampling = Choose(part.h_expand, part.v_expand, part.width);
    // Fancy upsampling looks one sample further.
    const int guard_x = part.upsampling == Upsampling::kFancyH2V1 || part.upsampling == Upsampling::kFancyH2V2;
    const int guard_y = part.upsampling == Upsampling::kFancyH1V2 || part.upsampling == Upsampling::kFancyH2V2;
    const int left = std::max(region.left / part.h_expand - guard_x, 0);
    const int right = std::min((region.left + region.width - 1) / part.h_expand + guard_x, part.width - 1);
    const int top = std::max(region.top / part.v_expand - guard_y, 0);
    const int bottom = std::min((region.top + region.height - 1) / part.v_expand + guard_y, part.height - 1);
    plan.first_mcu = std::min(plan.first_mcu, left / (8 * component.h));
    plan.last_mcu = std::max(plan.last_mcu, right / (8 * component.h));
    plan.first_row = std::min(plan.first_row, top / (8 * component.v));
    plan.last_row = std::max(plan.last_row, bottom / (8 * component.v));
  }
  return plan;
}

}  // namespace headrace
