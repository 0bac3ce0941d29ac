// Which part of each step's result is needed, from the last step back to the decoder. Internal to
// core/augment.
#pragma once

#include <vector>

#include "core/augment/draw.h"
#include "core/augment/resize.h"
#include "core/base/status.h"

namespace headrace {

struct Stage {
  const Step* step = nullptr;
  int in_height = 0, in_width = 0;    // of the whole image before the step
  int out_height = 0, out_width = 0;  // and behind it
  Rect window;                        // the part of the result that later steps need; not empty
};

// The steps on an image of height × width, and `source`: the part of that image they need.
// INVALID_ARGUMENT where a part is too large to be held in memory. Reuses the memory of `stages`;
// `steps` must outlive it.
absl::Status PlanSteps(const std::vector<Step>& steps, int height, int width,
                       std::vector<Stage>* stages, Rect* source);

// `rect` of an image of height × width after a flip of that image.
Rect FlippedHorizontally(const Rect& rect, int width);
Rect FlippedVertically(const Rect& rect, int height);

// The window of `stage`, a crop, in coordinates of the image before it. May lie outside that image,
// partly or wholly.
Rect CropWindow(const Stage& stage);
bool IsInside(const Rect& rect, int height, int width);

// Whether a resize makes another size.
bool ChangesSize(const Stage& stage);
// Whether a crop reaches outside the image.
bool FillsOutside(const Stage& stage);
// Whether the stage hands its input's pixels on as they are: a crop inside it, or a resize to its size.
bool PassesPixels(const Stage& stage);
// The resize whose rows go straight to the output: no pixels are made or moved between steps behind it. The number of stages when
// there is none.
size_t LastResize(const std::vector<Stage>& stages);

// `stage`, a resize, as a job.
ResizeJob MakeResizeJob(const Stage& stage);

}  // namespace headrace
