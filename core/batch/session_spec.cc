#include "core/batch/session_spec.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/batch/order.h"

namespace headrace {
namespace {

constexpr int kMaxBatchSize = 65536;
constexpr int kMaxWorldSize = 1 << 20;
constexpr int kMaxPrefetchFactor = 62;  // 64 slots
constexpr int kMaxThreads = 4096;
constexpr size_t kMaxFields = 15;  // the sample numbers are the 16th
constexpr size_t kMaxNameBytes = 31;

absl::Status CheckRange(const char* key, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(key, " is ", value, "; it must be ", low, " to ", high));
}

std::string FieldNames(const Dataset& dataset) {
  std::string names;
  for (const Field& field : dataset.fields()) absl::StrAppend(&names, names.empty() ? "" : ", ", field.name);
  return names;
}

absl::Status CheckFields(const SessionSpec& spec) {
  const Dataset& dataset = *spec.dataset;
  if (spec.fields.empty()) return absl::InvalidArgumentError("fields is empty");
  if (spec.fields.size() > kMaxFields) {
    return absl::InvalidArgumentError(
        absl::StrCat("fields has ", spec.fields.size(), " names; at most ", kMaxFields, " are possible"));
  }
  for (size_t i = 0; i < spec.fields.size(); ++i) {
    const std::string& name = spec.fields[i];
    if (name == "index") {
      return absl::InvalidArgumentError("fields: `index` is the name of the sample numbers, which are always there");
    }
    if (std::find(spec.fields.begin(), spec.fields.begin() + static_cast<ptrdiff_t>(i), name) !=
        spec.fields.begin() + static_cast<ptrdiff_t>(i)) {
      return absl::InvalidArgumentError(absl::StrCat("fields: `", name, "` is named twice"));
    }
    const int field = dataset.FindField(name);
    if (field < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("fields: ", dataset.dir(), " has no field `", name, "`; it has: ", FieldNames(dataset)));
    }
    if (name.size() > kMaxNameBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("fields: `", name, "` is longer than ", kMaxNameBytes, " bytes"));
    }
    if (dataset.fields()[static_cast<size_t>(field)].kind == FieldKind::kImage && name != "image") {
      return absl::InvalidArgumentError(
          absl::StrCat("fields: `", name, "` is an image; only the field `image` can be decoded"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SessionSpec::Validate() const {
  if (dataset == nullptr) return absl::InvalidArgumentError("dataset is missing");
  HEADRACE_RETURN_IF_ERROR(CheckRange("batch_size", batch_size, 1, kMaxBatchSize));
  HEADRACE_RETURN_IF_ERROR(CheckRange("world_size", world_size, 1, kMaxWorldSize));
  HEADRACE_RETURN_IF_ERROR(CheckRange("rank", rank, 0, world_size - 1));
  HEADRACE_RETURN_IF_ERROR(CheckRange("prefetch_factor", prefetch_factor, 0, kMaxPrefetchFactor));
  HEADRACE_RETURN_IF_ERROR(CheckRange("num_workers", max_threads, 0, kMaxThreads));
  HEADRACE_RETURN_IF_ERROR(CheckRange("max_bad", max_bad, -1, kMaxBad));
  if (max_bad >= 0 && on_bad_sample == OnBadSample::kFail) {
    return absl::InvalidArgumentError("max_bad limits what on_bad_sample = skip or substitute pass over; it is fail");
  }
  HEADRACE_RETURN_IF_ERROR(CheckFields(*this));
  if (std::find(fields.begin(), fields.end(), "image") != fields.end()) {
    if (recipe.dtype == DType::kUInt8 && recipe.normalize) {
      return absl::InvalidArgumentError("dtype is uint8, which Normalize cannot give; use a floating-point dtype");
    }
    HEADRACE_RETURN_IF_ERROR(recipe.OutputSize().status());
  }
  if (StepsLeft(*this, Cursor{}) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("an epoch has no step: ", dataset->dir(), " holds ", dataset->size(), " samples",
                     dataset->size() == 0 ? "" : ", and last_batch is drop with a batch_size × world_size of ",
                     dataset->size() == 0
                         ? ""
                         : std::to_string(static_cast<int64_t>(batch_size) * static_cast<int64_t>(world_size))));
  }
  return absl::OkStatus();
}

}  // namespace headrace
