#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "core/decode/image_decoder.h"

namespace headrace {
namespace {

RgbImage RandomImage(std::mt19937* random, int width, int height) {
  RgbImage image;
  image.Resize(width, height);
  for (uint8_t& byte : image.pixels) byte = static_cast<uint8_t>((*random)());
  return image;
}

std::vector<uint8_t> PixelAt(const RgbImage& image, int y, int x) {
  const uint8_t* pixel = image.row(y) + 3 * x;
  return {pixel, pixel + 3};
}

// Where the stored pixel (y, x) is shown, in the words of the EXIF 2.3 standard (tag Orientation:
// which sides of the shown picture the stored row 0 and column 0 are).
std::pair<int, int> ShownAt(int orientation, int y, int x, int height, int width) {
  switch (orientation) {
    case 2:
      return {y, width - 1 - x};  // row 0 top, column 0 right
    case 3:
      return {height - 1 - y, width - 1 - x};  // bottom, right
    case 4:
      return {height - 1 - y, x};  // bottom, left
    case 5:
      return {x, y};  // left, top
    case 6:
      return {x, height - 1 - y};  // right, top
    case 7:
      return {width - 1 - x, height - 1 - y};  // right, bottom
    case 8:
      return {width - 1 - x, y};  // left, bottom
    default:
      return {y, x};
  }
}

TEST(Orientation, PutsEveryPixelWhereTheStandardSays) {
  std::mt19937 random(1);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    for (const auto& [width, height] :
         {std::pair{1, 1}, {1, 9}, {7, 1}, {33, 65}, {100, 31}, {64, 32}}) {
      const RgbImage stored = RandomImage(&random, width, height);
      RgbImage shown;
      ApplyOrientation(stored, orientation, &shown);
      ASSERT_EQ(shown.width, orientation >= 5 ? height : width);
      ASSERT_EQ(shown.height, orientation >= 5 ? width : height);
      for (int y = 0; y < height; ++y) {
        for (int x = 0; x < width; ++x) {
          const auto [shown_y, shown_x] = ShownAt(orientation, y, x, height, width);
          ASSERT_EQ(PixelAt(shown, shown_y, shown_x), PixelAt(stored, y, x))
              << "orientation " << orientation;
        }
      }
    }
  }
}

TEST(Orientation, TurningAStoredRegionGivesTheRegionOfTheTurnedPicture) {
  std::mt19937 random(2);
  const int width = 40, height = 23;
  const RgbImage stored = RandomImage(&random, width, height);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    ImageInfo info;
    info.width = width;
    info.height = height;
    info.orientation = static_cast<uint8_t>(orientation);
    RgbImage shown;
    ApplyOrientation(stored, orientation, &shown);
    for (int k = 0; k < 50; ++k) {
      Rect region;
      region.width = 1 + static_cast<int>(random() % static_cast<unsigned>(shown.width));
      region.height = 1 + static_cast<int>(random() % static_cast<unsigned>(shown.height));
      region.left =
          static_cast<int>(random() % static_cast<unsigned>(shown.width - region.width + 1));
      region.top =
          static_cast<int>(random() % static_cast<unsigned>(shown.height - region.height + 1));
      const Rect from = StoredRegion(region, info);
      ASSERT_GE(from.top, 0);
      ASSERT_GE(from.left, 0);
      ASSERT_LE(from.top + from.height, height);
      ASSERT_LE(from.left + from.width, width);
      RgbImage part, turned;
      part.Resize(from.width, from.height);
      for (int y = 0; y < from.height; ++y) {
        std::copy_n(stored.row(from.top + y) + 3 * from.left, part.stride(), part.row(y));
      }
      ApplyOrientation(part, orientation, &turned);
      ASSERT_EQ(turned.width, region.width);
      ASSERT_EQ(turned.height, region.height);
      for (int y = 0; y < region.height; ++y) {
        for (int x = 0; x < region.width; ++x) {
          ASSERT_EQ(PixelAt(turned, y, x), PixelAt(shown, region.top + y, region.left + x));
        }
      }
    }
  }
}

}  // namespace
}  // namespace headrace
