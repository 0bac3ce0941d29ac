#include "core/decode/avif/scale_plane.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace headrace {
namespace {

// FNV-1a over the samples that avifImageScale of libavif 1.4.2 with libyuv 1924 (out of Pillow 13's wheel, with AVX2) makes of PlaneOf.
struct Case {
  int from_width, from_height, width, height;
  uint32_t bytes, words;
};
constexpr Case kCases[] = {
    {96, 72, 72, 54, 0xd146ca61, 0x67623351},
    {100, 72, 75, 54, 0x5d709aca, 0x1092be6b},
    {96, 72, 48, 36, 0xb8f8e4cf, 0x2f510c8f},
    {96, 80, 36, 30, 0xd3a1c4f9, 0xdea24eed},
    {72, 64, 27, 24, 0x45324515, 0xf6750d55},
    {96, 72, 24, 18, 0xc3a981bd, 0xdf3f802d},
    {96, 72, 32, 24, 0x52c7652e, 0x8de9b60c},
    {50, 40, 17, 9, 0x2b3f8f4e, 0xd1b5e716},
    {70, 600, 9, 2, 0x1535e242, 0xbc1b897d},
    {50, 40, 100, 80, 0x6306eb44, 0x2a9308a4},
    {50, 40, 99, 79, 0xc6b7f785, 0xf0b9f105},
    {50, 40, 100, 40, 0xa2e2708d, 0xe7ce908d},
    {50, 40, 50, 90, 0x70af8413, 0x43d3ad36},
    {50, 40, 50, 17, 0xd0a2c9be, 0x150f19b7},
    {50, 40, 61, 47, 0xa61961a8, 0x99f4e878},
    {50, 40, 61, 31, 0xe673e123, 0x47c45cac},
    {50, 40, 31, 61, 0x3d2a5a75, 0xfc6ab051},
    {50, 40, 47, 33, 0x77abbd9a, 0x1c653b1e},
    {1, 40, 7, 50, 0x7c1f1810, 0x6e455510},
    {40, 1, 55, 6, 0xc0869d65, 0xc5cdd97f},
    {40, 1, 80, 6, 0x134cd385, 0x485f0b85},
    {1, 1, 3, 2, 0x5dfdd27d, 0xef0eda7d},
    {50, 60, 25, 20, 0xaa259a54, 0x07a166d4},
    {60, 60, 20, 20, 0x6a06e591, 0xb78e91db},
    {60, 60, 20, 60, 0xe5fb98a8, 0x7b8816a8},
};

template <typename Sample>
std::vector<Sample> PlaneOf(const Case& one) {
  std::vector<Sample> plane(static_cast<size_t>(one.from_width * one.from_height));
  uint32_t state = 1;
  for (Sample& sample : plane) {
    state = state * 1664525 + 1013904223;
    sample = static_cast<Sample>(state >> 16 & (sizeof(Sample) == 1 ? 255 : 4095));
    // Nearly white where many rows are summed: sums of bytes are 16 bits wide there.
    if (sizeof(Sample) == 1 && one.from_height == 600 && sample >= 16) sample = 255;
  }
  return plane;
}

template <typename Sample>
uint32_t HashOf(const std::vector<Sample>& plane) {
  uint32_t hash = 0x811c9dc5;
  for (const Sample sample : plane) hash = (hash ^ sample) * 0x01000193;
  return hash;
}

TEST(ScalePlane, GivesLibyuvsSamples) {
  for (const Case& one : kCases) {
    const std::vector<uint8_t> bytes = PlaneOf<uint8_t>(one);
    const std::vector<uint16_t> words = PlaneOf<uint16_t>(one);
    std::vector<uint8_t> byte_result(static_cast<size_t>(one.width * one.height));
    std::vector<uint16_t> word_result(byte_result.size());
    ScalePlane8({bytes.data(), one.from_width, one.from_width, one.from_height}, one.width, one.height, byte_result.data());
    const auto* data = reinterpret_cast<const uint8_t*>(words.data());
    ScalePlane16({data, 2 * one.from_width, one.from_width, one.from_height}, one.width, one.height, word_result.data());
    const std::string name = absl::StrCat(one.from_width, " x ", one.from_height, " to ", one.width, " x ", one.height);
    EXPECT_EQ(HashOf(byte_result), one.bytes) << name;
    EXPECT_EQ(HashOf(word_result), one.words) << name;
  }
}

}  // namespace
}  // namespace headrace
