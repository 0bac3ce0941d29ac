#include "core/augment/recipe.h"

#include "absl/strings/str_cat.h"
#include "core/augment/geometry.h"

namespace headrace {
namespace {

constexpr char kAddCrop[] =
    "add RandomResizedCrop(224), or Resize(256) followed by CenterCrop(224)";

}  // namespace

absl::StatusOr<std::array<int, 2>> Recipe::OutputSize() const {
  bool known = false;
  std::array<int, 2> size = {0, 0};
  const Resize* keeps_aspect = nullptr;  // the last step that leaves the shape open
  for (const Transform& transform : transforms) {
    if (const auto* resize = std::get_if<Resize>(&transform)) {
      if (resize->shorter_side > 0 && !known) {
        keeps_aspect = resize;
        continue;
      }
      const std::array<int64_t, 2> resized = ResizedSize(*resize, size[0], size[1]);
      if (resized[0] > kMaxOutputSidePx || resized[1] > kMaxOutputSidePx) {
        return absl::InvalidArgumentError(
            absl::StrCat("Resize(", resize->shorter_side, ") makes images of ", resized[0], " x ",
                         resized[1], " px; the limit is ", kMaxOutputSidePx));
      }
      size = {static_cast<int>(resized[0]), static_cast<int>(resized[1])};
      known = true;
    } else if (const auto* crop = std::get_if<RandomResizedCrop>(&transform)) {
      size = {crop->height, crop->width};
      known = true;
    } else if (const auto* center = std::get_if<CenterCrop>(&transform)) {
      size = {center->height, center->width};
      known = true;
    } else if (const auto* random = std::get_if<RandomCrop>(&transform)) {
      size = {random->height, random->width};
      known = true;
    }  // flips keep the size
  }
  if (known) return size;
  if (keeps_aspect != nullptr) {
    const int side = keeps_aspect->shorter_side;
    return absl::InvalidArgumentError(
        absl::StrCat("shapes differ between samples, because Resize(", side,
                     ") keeps the aspect ratio: add CenterCrop(", side,
                     ") behind it, or use Resize((", side, ", ", side, "))"));
  }
  return absl::InvalidArgumentError(absl::StrCat("shapes differ between samples: ", kAddCrop));
}

}  // namespace headrace
