// Recipes of all kinds of steps, filters, types and layouts.
#pragma once

#include <random>

#include "core/augment/recipe.h"

namespace headrace::testing {

class RandomRecipe {
 public:
  explicit RandomRecipe(std::mt19937* random) : random_(*random) {}

  Recipe Make() {
    Recipe recipe;
    recipe.dtype = static_cast<DType>(Below(4));
    recipe.memory_format = static_cast<MemoryFormat>(Below(2));
    if (recipe.dtype != DType::kUInt8 && Below(4) != 0) {
      recipe.normalize = Below(2) == 0 ? Normalize{} : Normalize{{Unit(), Unit(), Unit()}, {Unit(), Unit(), Unit()}};
    }
    if (Below(8) == 0) Flips(&recipe);
    switch (Below(6)) {
      case 0:
        Shorter(&recipe);
        recipe.transforms.push_back(CenterCrop{.height = Side(), .width = Side()});
        break;
      case 1:
        recipe.transforms.push_back(RandomCrop{.height = Side(),
                                               .width = Side(),
                                               .padding = {Below(9), Below(9), Below(9), Below(9)},
                                               .pad_if_needed = true,
                                               .fill = {1, 2, 3}});
        break;
      case 2:
        recipe.transforms.push_back(
            Resize{.height = Side(), .width = Side(), .interpolation = Filter()});
        break;
      case 3:
        recipe.transforms.push_back(CenterCrop{.height = Side(), .width = Side()});
        if (Below(2) == 0)
          recipe.transforms.push_back(
              Resize{.height = Side(), .width = Side(), .interpolation = Filter()});
        break;
      default:
        recipe.transforms.push_back(
            RandomResizedCrop{.height = Side(), .width = Side(), .interpolation = Filter()});
    }
    Flips(&recipe);
    return recipe;
  }

 private:
  int Below(int bound) { return static_cast<int>(random_() % static_cast<unsigned>(bound)); }
  double Unit() { return (1 + Below(255)) / 256.0; }
  int Side() { return Below(10) == 0 ? 224 : 1 + Below(100); }
  Interpolation Filter() {
    return Below(2) == 0 ? Interpolation::kBilinear : static_cast<Interpolation>(Below(6));
  }
  void Shorter(Recipe* recipe) {
    const int side = Side();
    const int max_size = Below(3) == 0 ? side + 1 + Below(100) : 0;
    recipe->transforms.push_back(Resize{.shorter_side = side, .max_size = max_size, .interpolation = Filter()});
  }
  void Flips(Recipe* recipe) {
    recipe->transforms.push_back(RandomHorizontalFlip{});
    if (Below(4) == 0) recipe->transforms.push_back(RandomVerticalFlip{});
  }

  std::mt19937& random_;
};

}  // namespace headrace::testing
