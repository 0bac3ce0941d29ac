// ParseRecipe: strict reading of a recipe's JSON. Every message starts with the place of what it
// complains about.
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/augment/recipe.h"

namespace headrace {
namespace {

using nlohmann::json;

constexpr size_t kMaxTransforms = 64;
constexpr double kMaxRatio = 1e6;

// Reads the keys of one JSON object. The first complaint is kept; later reads do nothing. Null
// counts as absent.
class ObjectReader {
 public:
  ObjectReader(const json& object, std::string place) : object_(object), place_(std::move(place)) {}

  const json* Find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  void Fail(const std::string& what) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat(place_, ": ", what));
  }
  void FailKey(const char* key, const std::string& expected) {
    const json* value = Find(key);
    Fail(absl::StrCat("\"", key, "\" must be ", expected,
                      value == nullptr ? "" : ", not " + value->dump()));
  }

  void CheckKeys(std::initializer_list<const char*> known) {
    for (const auto& [key, value] : object_.items()) {
      bool found = key == "name";
      for (const char* name : known) found = found || key == name;
      if (!found) Fail(absl::StrCat("unknown key \"", key, "\""));
    }
  }

  // Integers `low` … `high`; `counts` are the allowed lengths of a list, 1 stands for a bare number
  // too.
  bool Integers(const char* key, int low, int high, std::initializer_list<size_t> counts,
                const std::string& expected, std::vector<int>* out) {
    const json* value = Find(key);
    if (value == nullptr) return false;
    const json list = value->is_array() ? *value : json::array({*value});
    bool good = false;
    for (size_t count : counts) good = good || list.size() == count;
    out->clear();
    for (const json& element : list) {
      good = good && element.is_number_integer() && element >= low && element <= high;
      if (good) out->push_back(element.get<int>());
    }
    if (!good) FailKey(key, absl::StrCat(expected, " of integers from ", low, " to ", high));
    return good;
  }

  bool Numbers(const char* key, double low, double high, std::initializer_list<size_t> counts,
               const std::string& expected, std::vector<double>* out) {
    const json* value = Find(key);
    if (value == nullptr) return false;
    const json list = value->is_array() ? *value : json::array({*value});
    bool good = false;
    for (size_t count : counts) good = good || list.size() == count;
    out->clear();
    for (const json& element : list) {
      good = good && element.is_number() && element.get<double>() >= low &&
             element.get<double>() <= high;
      if (good) out->push_back(element.get<double>());
    }
    if (!good) FailKey(key, absl::StrCat(expected, " from ", low, " to ", high));
    return good;
  }

  // A required size: n (or [n]) is n × n.
  void Size(int* height, int* width) {
    std::vector<int> values;
    if (Find("size") == nullptr) Fail("\"size\" is missing");
    if (!Integers("size", 1, kMaxOutputSidePx, {1, 2}, "n or [height, width]", &values)) return;
    *height = values.front();
    *width = values.back();
  }

  // An increasing pair.
  void Range(const char* key, double low, double high, double* min, double* max) {
    std::vector<double> values;
    if (!Numbers(key, low, high, {2}, "[least, greatest]", &values)) return;
    if (values[0] > values[1]) return FailKey(key, "[least, greatest]");
    *min = values[0];
    *max = values[1];
  }

  // One of `names`; its number in `out`.
  template <typename Enum>
  void Choice(const char* key, std::initializer_list<std::pair<const char*, Enum>> names,
              Enum* out) {
    const json* value = Find(key);
    if (value == nullptr) return;
    std::string all;
    for (const auto& [name, number] : names) {
      if (value->is_string() && *value == name) {
        *out = number;
        return;
      }
      absl::StrAppend(&all, all.empty() ? "" : ", ", name);
    }
    FailKey(key, "one of " + all);
  }

  void Interpolate(Interpolation* out) {
    Choice<Interpolation>("interpolation",
                          {{"nearest", Interpolation::kNearest},
                           {"bilinear", Interpolation::kBilinear},
                           {"bicubic", Interpolation::kBicubic},
                           {"lanczos", Interpolation::kLanczos},
                           {"box", Interpolation::kBox},
                           {"hamming", Interpolation::kHamming}},
                          out);
  }

  void Probability(double* p) {
    std::vector<double> values;
    if (Find("p") != nullptr && Find("p")->is_array()) return FailKey("p", "a number from 0 to 1");
    if (Numbers("p", 0, 1, {1}, "a number", &values)) *p = values[0];
  }

  const absl::Status& status() const { return status_; }

 private:
  const json& object_;
  std::string place_;
  absl::Status status_;
};

RandomResizedCrop ReadRandomResizedCrop(ObjectReader& reader) {
  RandomResizedCrop crop;
  reader.CheckKeys({"size", "scale", "ratio", "interpolation"});
  reader.Size(&crop.height, &crop.width);
  reader.Range("scale", 0, kMaxRatio, &crop.scale_min, &crop.scale_max);
  reader.Range("ratio", 1 / kMaxRatio, kMaxRatio, &crop.ratio_min, &crop.ratio_max);
  reader.Interpolate(&crop.interpolation);
  return crop;
}

Resize ReadResize(ObjectReader& reader) {
  Resize resize;
  reader.CheckKeys({"size", "max_size", "interpolation"});
  std::vector<int> values;
  if (reader.Find("size") == nullptr) reader.Fail("\"size\" is missing");
  if (reader.Integers("size", 1, kMaxOutputSidePx, {1, 2}, "n (shorter side) or [height, width]",
                      &values)) {
    if (values.size() == 1) {
      resize.shorter_side = values[0];
    } else {
      resize.height = values[0];
      resize.width = values[1];
    }
  }
  if (reader.Integers("max_size", 1, kMaxOutputSidePx, {1}, "one", &values)) {
    resize.max_size = values[0];
    if (resize.shorter_side == 0) reader.Fail("\"max_size\" needs a \"size\" of one number");
    if (resize.max_size <= resize.shorter_side) {
      reader.FailKey("max_size", absl::StrCat("greater than \"size\" (", resize.shorter_side, ")"));
    }
  }
  reader.Interpolate(&resize.interpolation);
  return resize;
}

RandomCrop ReadRandomCrop(ObjectReader& reader) {
  RandomCrop crop;
  reader.CheckKeys({"size", "padding", "pad_if_needed", "fill"});
  reader.Size(&crop.height, &crop.width);
  std::vector<int> values;
  if (reader.Integers("padding", 0, kMaxOutputSidePx, {1, 2, 4},
                      "n, [horizontal, vertical] or [left, top, right, bottom]", &values)) {
    // One number stands for all sides, two for left = right and top = bottom.
    const size_t n = values.size();
    for (size_t side = 0; side < 4; ++side) crop.padding[side] = values[side % n];
  }
  if (const json* value = reader.Find("pad_if_needed")) {
    if (value->is_boolean()) {
      crop.pad_if_needed = value->get<bool>();
    } else {
      reader.FailKey("pad_if_needed", "true or false");
    }
  }
  if (reader.Integers("fill", 0, 255, {1, 3}, "n or [red, green, blue]", &values)) {
    for (size_t c = 0; c < 3; ++c) crop.fill[c] = static_cast<uint8_t>(values[c % values.size()]);
  }
  return crop;
}

Normalize ReadNormalize(ObjectReader& reader) {
  Normalize normalize;
  reader.CheckKeys({"mean", "std"});
  std::vector<double> values;
  if (reader.Numbers("mean", -1e6, 1e6, {1, 3}, "a number or three", &values)) {
    for (size_t c = 0; c < 3; ++c) normalize.mean[c] = values[c % values.size()];
  }
  if (reader.Numbers("std", 1e-6, 1e6, {1, 3}, "a number or three", &values)) {
    for (size_t c = 0; c < 3; ++c) normalize.std[c] = values[c % values.size()];
  }
  return normalize;
}

absl::Status ReadTransform(const json& object, size_t number, Recipe* recipe) {
  const std::string place = absl::StrCat("transform[", number, "]");
  if (!object.is_object() || !object.contains("name") || !object["name"].is_string()) {
    return absl::InvalidArgumentError(place + " must be an object with a \"name\"");
  }
  const std::string name = object["name"].get<std::string>();
  if (recipe->normalize.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(place, ": ", name, " stands behind Normalize, which must be last"));
  }
  ObjectReader reader(object, absl::StrCat(place, " ", name));
  if (name == "RandomResizedCrop") {
    recipe->transforms.push_back(ReadRandomResizedCrop(reader));
  } else if (name == "Resize") {
    recipe->transforms.push_back(ReadResize(reader));
  } else if (name == "CenterCrop") {
    CenterCrop crop;
    reader.CheckKeys({"size"});
    reader.Size(&crop.height, &crop.width);
    recipe->transforms.push_back(crop);
  } else if (name == "RandomCrop") {
    recipe->transforms.push_back(ReadRandomCrop(reader));
  } else if (name == "RandomHorizontalFlip") {
    RandomHorizontalFlip flip;
    reader.CheckKeys({"p"});
    reader.Probability(&flip.p);
    recipe->transforms.push_back(flip);
  } else if (name == "RandomVerticalFlip") {
    RandomVerticalFlip flip;
    reader.CheckKeys({"p"});
    reader.Probability(&flip.p);
    recipe->transforms.push_back(flip);
  } else if (name == "Normalize") {
    recipe->normalize = ReadNormalize(reader);
  } else {
    return absl::InvalidArgumentError(absl::StrCat(place, ": unknown transform \"", name, "\""));
  }
  return reader.status();
}

}  // namespace

absl::StatusOr<Recipe> ParseRecipe(const std::string& text) {
  const json object = json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded() || !object.is_object()) {
    return absl::InvalidArgumentError("the recipe is no JSON object");
  }
  Recipe recipe;
  ObjectReader reader(object, "recipe");
  for (const auto& [key, value] : object.items()) {
    if (key != "transform" && key != "dtype" && key != "memory_format") {
      return absl::InvalidArgumentError(absl::StrCat("recipe: unknown key \"", key, "\""));
    }
  }
  reader.Choice<DType>("dtype",
                       {{"uint8", DType::kUInt8},
                        {"float16", DType::kFloat16},
                        {"bfloat16", DType::kBFloat16},
                        {"float32", DType::kFloat32}},
                       &recipe.dtype);
  reader.Choice<MemoryFormat>(
      "memory_format",
      {{"contiguous", MemoryFormat::kContiguous}, {"channels_last", MemoryFormat::kChannelsLast}},
      &recipe.memory_format);
  HEADRACE_RETURN_IF_ERROR(reader.status());
  if (const json* transforms = reader.Find("transform")) {
    if (!transforms->is_array() || transforms->size() > kMaxTransforms) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"transform\" must be a list of at most ", kMaxTransforms, " transforms"));
    }
    for (size_t i = 0; i < transforms->size(); ++i) {
      HEADRACE_RETURN_IF_ERROR(ReadTransform((*transforms)[i], i, &recipe));
    }
  }
  if (recipe.dtype == DType::kUInt8 && recipe.normalize.has_value()) {
    return absl::InvalidArgumentError(
        "dtype uint8 cannot hold normalised pixels: drop Normalize or choose float16, bfloat16 or "
        "float32");
  }
  return recipe;
}

}  // namespace headrace
