#include "core/augment/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const std::string& json) {
  const absl::StatusOr<Recipe> recipe = ParseRecipe(json);
  if (recipe.ok()) return "parsed";
  EXPECT_EQ(recipe.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(recipe.status().message());
}

std::string ErrorOfTransform(const std::string& transform) {
  return ErrorOf(R"({"transform": [)" + transform + "]}");
}

std::string SizeErrorOf(const std::string& transforms) {
  const absl::StatusOr<Recipe> recipe = ParseRecipe(R"({"transform": [)" + transforms + "]}");
  EXPECT_TRUE(recipe.ok()) << recipe.status();
  const auto size = recipe->OutputSize();
  return size.ok() ? "known" : std::string(size.status().message());
}

std::array<int, 2> SizeOf(const std::string& transforms) {
  const absl::StatusOr<Recipe> recipe = ParseRecipe(R"({"transform": [)" + transforms + "]}");
  EXPECT_TRUE(recipe.ok()) << recipe.status();
  const auto size = recipe->OutputSize();
  EXPECT_TRUE(size.ok()) << size.status();
  return size.value_or(std::array<int, 2>{0, 0});
}

TEST(ParseRecipe, ReadsEveryKey) {
  const absl::StatusOr<Recipe> parsed = ParseRecipe(R"({
    "transform": [
      {"name": "RandomResizedCrop", "size": [224, 192], "scale": [0.1, 0.9], "ratio": [0.5, 2], "interpolation": "bicubic"},
      {"name": "Resize", "size": 256, "max_size": 300, "interpolation": "lanczos"},
      {"name": "Resize", "size": [10, 20], "max_size": null},
      {"name": "CenterCrop", "size": [8, 9]},
      {"name": "RandomCrop", "size": 7, "padding": [1, 2, 3, 4], "pad_if_needed": true, "fill": [5, 6, 7]},
      {"name": "RandomHorizontalFlip", "p": 0.25},
      {"name": "RandomVerticalFlip"},
      {"name": "Normalize", "mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}],
    "dtype": "bfloat16", "memory_format": "channels_last"})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->transforms.size(), 7);
  const auto& resized_crop = std::get<RandomResizedCrop>(parsed->transforms[0]);
  EXPECT_EQ(resized_crop.height, 224);
  EXPECT_EQ(resized_crop.width, 192);
  EXPECT_EQ(resized_crop.scale_min, 0.1);
  EXPECT_EQ(resized_crop.scale_max, 0.9);
  EXPECT_EQ(resized_crop.ratio_min, 0.5);
  EXPECT_EQ(resized_crop.ratio_max, 2);
  EXPECT_EQ(resized_crop.interpolation, Interpolation::kBicubic);
  const auto& shorter = std::get<Resize>(parsed->transforms[1]);
  EXPECT_EQ(shorter.shorter_side, 256);
  EXPECT_EQ(shorter.max_size, 300);
  EXPECT_EQ(shorter.height, 0);
  EXPECT_EQ(shorter.interpolation, Interpolation::kLanczos);
  EXPECT_EQ(std::get<Resize>(parsed->transforms[2]).height, 10);
  EXPECT_EQ(std::get<Resize>(parsed->transforms[2]).width, 20);
  EXPECT_EQ(std::get<CenterCrop>(parsed->transforms[3]).width, 9);
  const auto& crop = std::get<RandomCrop>(parsed->transforms[4]);
  EXPECT_EQ(crop.height, 7);
  EXPECT_EQ(crop.width, 7);
  EXPECT_EQ(crop.padding, (std::array<int, 4>{1, 2, 3, 4}));
  EXPECT_TRUE(crop.pad_if_needed);
  EXPECT_EQ(crop.fill, (std::array<uint8_t, 3>{5, 6, 7}));
  EXPECT_EQ(std::get<RandomHorizontalFlip>(parsed->transforms[5]).p, 0.25);
  EXPECT_EQ(std::get<RandomVerticalFlip>(parsed->transforms[6]).p, 0.5);
  ASSERT_TRUE(parsed->normalize.has_value());
  EXPECT_EQ(parsed->normalize->mean, (std::array<double, 3>{0.1, 0.2, 0.3}));
  EXPECT_EQ(parsed->normalize->std, (std::array<double, 3>{0.4, 0.5, 0.6}));
  EXPECT_EQ(parsed->dtype, DType::kBFloat16);
  EXPECT_EQ(parsed->memory_format, MemoryFormat::kChannelsLast);
}

TEST(ParseRecipe, HasTorchvisionsDefaults) {
  const absl::StatusOr<Recipe> parsed = ParseRecipe(
      R"({"transform": [{"name": "RandomResizedCrop", "size": 224}, {"name": "RandomCrop", "size": 5}, {"name": "Normalize"}]})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const auto& crop = std::get<RandomResizedCrop>(parsed->transforms[0]);
  EXPECT_EQ(crop.scale_min, 0.08);
  EXPECT_EQ(crop.ratio_max, 4.0 / 3.0);
  EXPECT_EQ(crop.interpolation, Interpolation::kBilinear);
  EXPECT_EQ(std::get<RandomCrop>(parsed->transforms[1]).padding, (std::array<int, 4>{}));
  EXPECT_EQ(parsed->normalize->mean[0], 0.485);
  EXPECT_EQ(parsed->dtype, DType::kFloat32);
  EXPECT_EQ(parsed->memory_format, MemoryFormat::kContiguous);
  EXPECT_TRUE(ParseRecipe("{}").ok());
}

TEST(ParseRecipe, SpreadsShortPaddingsAsTorchvisionDoes) {
  const auto padding = [](const std::string& value) {
    const auto recipe =
        ParseRecipe(R"({"transform": [{"name": "RandomCrop", "size": 5, "fill": 9, "padding": )" +
                    value + "}]}");
    EXPECT_TRUE(recipe.ok()) << recipe.status();
    EXPECT_EQ(std::get<RandomCrop>(recipe->transforms[0]).fill, (std::array<uint8_t, 3>{9, 9, 9}));
    return std::get<RandomCrop>(recipe->transforms[0]).padding;
  };
  EXPECT_EQ(padding("4"), (std::array<int, 4>{4, 4, 4, 4}));
  EXPECT_EQ(padding("[4, 1]"), (std::array<int, 4>{4, 1, 4, 1}));  // left, top, right, bottom
  EXPECT_EQ(padding("null"), (std::array<int, 4>{0, 0, 0, 0}));
}

TEST(ParseRecipe, NamesWhatItDoesNotAccept) {
  EXPECT_THAT(ErrorOf("["), HasSubstr("no JSON object"));
  EXPECT_THAT(ErrorOf(R"({"transforms": []})"), HasSubstr("unknown key \"transforms\""));
  EXPECT_THAT(ErrorOf(R"({"transform": {}})"), HasSubstr("\"transform\" must be a list"));
  EXPECT_THAT(ErrorOf(R"({"dtype": "float64"})"),
              HasSubstr("\"dtype\" must be one of uint8, float16, bfloat16, float32"));
  EXPECT_THAT(ErrorOf(R"({"memory_format": 1})"),
              HasSubstr("\"memory_format\" must be one of contiguous, channels_last"));
  EXPECT_THAT(ErrorOfTransform("7"), HasSubstr("transform[0] must be an object with a \"name\""));
  EXPECT_THAT(ErrorOfTransform(R"({"name": "ColorJitter"})"),
              HasSubstr("unknown transform \"ColorJitter\""));
  EXPECT_THAT(ErrorOfTransform(R"({"name": "Resize", "size": 5, "sise": 6})"),
              HasSubstr("transform[0] Resize: unknown key \"sise\""));
  EXPECT_THAT(ErrorOfTransform(R"({"name": "RandomHorizontalFlip"}, {"name": "CenterCrop"})"),
              HasSubstr("transform[1] CenterCrop: \"size\" is missing"));
  EXPECT_THAT(ErrorOfTransform(R"({"name": "CenterCrop", "size": 0})"),
              HasSubstr("from 1 to 16384, not 0"));
  EXPECT_THAT(ErrorOfTransform(R"({"name": "CenterCrop", "size": 2.5})"),
              HasSubstr("\"size\" must be"));
  EXPECT_THAT(ErrorOfTransform(R"({"name": "CenterCrop", "size": true})"),
              HasSubstr("\"size\" must be"));
  EXPECT_THAT(ErrorOfTransform(R"({"name": "CenterCrop", "size": [1, 2, 3]})"),
              HasSubstr("\"size\" must be"));
  EXPECT_THAT(ErrorOfTransform(R"({"name": "CenterCrop", "size": 99999999999999999999})"),
              HasSubstr("\"size\" must be"));
  EXPECT_THAT(ErrorOfTransform(R"({"name": "Resize", "size": [5, 5], "max_size": 9})"),
              HasSubstr("one number"));
  EXPECT_THAT(ErrorOfTransform(R"({"name": "Resize", "size": 5, "max_size": 5})"),
              HasSubstr("greater than \"size\""));
  EXPECT_THAT(ErrorOfTransform(R"({"name": "Resize", "size": 5, "interpolation": "cubic"})"),
              HasSubstr("one of nearest, bilinear, bicubic, lanczos, box, hamming, not \"cubic\""));
  EXPECT_THAT(ErrorOfTransform(R"({"name": "RandomResizedCrop", "size": 5, "scale": [0.9, 0.1]})"),
              HasSubstr("\"scale\""));
  EXPECT_THAT(ErrorOfTransform(R"({"name": "RandomResizedCrop", "size": 5, "ratio": [0, 1]})"),
              HasSubstr("\"ratio\""));
  EXPECT_THAT(ErrorOfTransform(R"({"name": "RandomHorizontalFlip", "p": 1.5})"),
              HasSubstr("\"p\" must be"));
  EXPECT_THAT(ErrorOfTransform(R"({"name": "RandomHorizontalFlip", "p": [0.5]})"),
              HasSubstr("\"p\" must be"));
  EXPECT_THAT(ErrorOfTransform(R"({"name": "RandomCrop", "size": 5, "padding": [1, 2, 3]})"),
              HasSubstr("\"padding\""));
  EXPECT_THAT(ErrorOfTransform(R"({"name": "RandomCrop", "size": 5, "padding": -1})"),
              HasSubstr("\"padding\""));
  EXPECT_THAT(ErrorOfTransform(R"({"name": "RandomCrop", "size": 5, "fill": 256})"),
              HasSubstr("\"fill\""));
  EXPECT_THAT(ErrorOfTransform(R"({"name": "RandomCrop", "size": 5, "pad_if_needed": 1})"),
              HasSubstr("true or false"));
  EXPECT_THAT(ErrorOfTransform(R"({"name": "Normalize", "std": [1, 0, 1]})"), HasSubstr("\"std\""));
  EXPECT_THAT(ErrorOfTransform(R"({"name": "Normalize"}, {"name": "RandomVerticalFlip"})"),
              HasSubstr("must be last"));
  EXPECT_THAT(ErrorOf(R"({"dtype": "uint8", "transform": [{"name": "Normalize"}]})"),
              HasSubstr("drop Normalize"));
}

TEST(OutputSize, IsThatOfTheLastTransformThatFixesIt) {
  EXPECT_EQ(
      SizeOf(R"({"name": "RandomResizedCrop", "size": [3, 4]}, {"name": "RandomHorizontalFlip"})"),
      (std::array<int, 2>{3, 4}));
  EXPECT_EQ(SizeOf(R"({"name": "Resize", "size": 256}, {"name": "CenterCrop", "size": 224})"),
            (std::array<int, 2>{224, 224}));
  EXPECT_EQ(SizeOf(R"({"name": "CenterCrop", "size": [20, 30]}, {"name": "Resize", "size": 10})"),
            (std::array<int, 2>{10, 15}));
}

TEST(OutputSize, NamesTheTransformThatIsMissing) {
  EXPECT_EQ(SizeErrorOf(""),
            "shapes differ between samples: add RandomResizedCrop(224), or Resize(256) followed by "
            "CenterCrop(224)");
  EXPECT_EQ(SizeErrorOf(R"({"name": "Normalize"})"),
            SizeErrorOf(R"({"name": "RandomVerticalFlip"})"));
  EXPECT_EQ(SizeErrorOf(R"({"name": "Resize", "size": 256}, {"name": "RandomHorizontalFlip"})"),
            "shapes differ between samples, because Resize(256) keeps the aspect ratio: add "
            "CenterCrop(256) behind it, or "
            "use Resize((256, 256))");
  EXPECT_THAT(
      SizeErrorOf(R"({"name": "CenterCrop", "size": [1, 1000]}, {"name": "Resize", "size": 256})"),
      HasSubstr("the limit is 16384"));
}

}  // namespace
}  // namespace headrace
