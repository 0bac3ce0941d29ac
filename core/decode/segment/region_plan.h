// Which MCUs and samples a region of an image needs, and how each component reaches the image's resolution. Internal to
// core/decode/segment.
#pragma once

#include <array>

#include "core/base/status.h"
#include "core/decode/entry/jpeg_frame.h"
#include "core/decode/image.h"
#include "core/decode/segment/upsampling.h"

namespace headrace {

struct ComponentPlan {
  Upsampling upsampling = Upsampling::kNone;
  int h_expand = 1, v_expand = 1;
  int width = 0, height = 0;  // of the component, in samples: ⌈image · factor ÷ largest factor⌉
};

struct RegionPlan {
  std::array<ComponentPlan, 4> components;
  int first_row = 0, last_row = 0;  // MCU rows, inclusive
  int first_mcu = 0, last_mcu = 0;  // MCU columns, inclusive
};

// UNIMPLEMENTED when a factor does not divide the largest one.
absl::StatusOr<RegionPlan> PlanRegion(const JpegShape& frame, const Rect& region);

// Behind the last row libjpeg looks at the end of the file, so that must be as it was.
inline bool TouchesEnd(const JpegShape& frame, const Rect& region) { return region.top + region.height == frame.height; }

}  // namespace headrace
