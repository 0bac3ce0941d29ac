// A recipe: the decode and augmentation steps of a session, as plain data. Names and defaults are
// torchvision v2's.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/base/status.h"

namespace headrace {

// Longest side of an output, px.
inline constexpr int kMaxOutputSidePx = 16384;

enum class Interpolation : uint8_t { kNearest, kBilinear, kBicubic, kLanczos, kBox, kHamming };
enum class DType : uint8_t { kUInt8, kFloat16, kBFloat16, kFloat32 };
// NCHW | NHWC in memory; the shape is always N, C, H, W.
enum class MemoryFormat : uint8_t { kContiguous, kChannelsLast };

struct RandomResizedCrop {
  int height = 0, width = 0;  // px
  double scale_min = 0.08, scale_max = 1.0;
  double ratio_min = 3.0 / 4.0, ratio_max = 4.0 / 3.0;
  Interpolation interpolation = Interpolation::kBilinear;
};
struct Resize {
  // size = (height, width), or only `shorter_side` (then height and width are 0), with
  // torchvision's max_size.
  int height = 0, width = 0;
  int shorter_side = 0;
  int max_size = 0;  // 0: none
  Interpolation interpolation = Interpolation::kBilinear;
};
struct CenterCrop {
  int height = 0, width = 0;
};
struct RandomCrop {
  int height = 0, width = 0;
  std::array<int, 4> padding = {0, 0, 0, 0};  // left, top, right, bottom, as torchvision
  bool pad_if_needed = false;
  std::array<uint8_t, 3> fill = {0, 0, 0};
};
struct RandomHorizontalFlip {
  double p = 0.5;
};
struct RandomVerticalFlip {
  double p = 0.5;
};
using Transform = std::variant<RandomResizedCrop, Resize, CenterCrop, RandomCrop,
                               RandomHorizontalFlip, RandomVerticalFlip>;

struct Normalize {
  std::array<double, 3> mean = {0.485, 0.456, 0.406};
  std::array<double, 3> std = {0.229, 0.224, 0.225};
};

struct Recipe {
  std::vector<Transform> transforms;  // in order; Normalize is last or absent
  std::optional<Normalize> normalize;
  DType dtype = DType::kFloat32;
  MemoryFormat memory_format = MemoryFormat::kContiguous;

  // Height and width of every output, or INVALID_ARGUMENT naming the transform that is missing when
  // shapes would differ.
  absl::StatusOr<std::array<int, 2>> OutputSize() const;
};

// From the JSON of docs/protocol.md, every key of which may be absent:
//   {"transform": [{"name": "RandomResizedCrop", "size": [224, 224], …}, …], "dtype": "float16",
//    "memory_format": "channels_last"}
// Unknown keys, wrong types and ranges are INVALID_ARGUMENT and name the key.
// uint8 with Normalize is an error.
absl::StatusOr<Recipe> ParseRecipe(const std::string& json);

}  // namespace headrace
