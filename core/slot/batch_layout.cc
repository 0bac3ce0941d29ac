#include "core/slot/batch_layout.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/augment/render.h"

namespace headrace {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kPage = 4096;
constexpr uint64_t kMaxSlotBytes = uint64_t{1} << 40;
constexpr uint64_t kMaxTextBytes = uint64_t{0xFFFFFFFF};  // `ends` are 32-bit

uint64_t RoundUp(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

hr_dtype SlotDType(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
      return HR_UINT8;
    case DType::kFloat16:
      return HR_FLOAT16;
    case DType::kBFloat16:
      return HR_BFLOAT16;
    case DType::kFloat32:
      return HR_FLOAT32;
  }
  return HR_FLOAT32;
}

hr_field_layout Named(const std::string& name, uint32_t dtype, int64_t batch_size) {
  hr_field_layout field{};
  std::memcpy(field.name, name.data(), std::min(name.size(), sizeof(field.name) - 1));
  field.dtype = dtype;
  field.ndim = 1;
  field.shape[0] = batch_size;
  field.strides[0] = 1;
  return field;
}

absl::StatusOr<hr_field_layout> ImageField(const SessionSpec& spec) {
  HEADRACE_ASSIGN_OR_RETURN(const auto size, spec.recipe.OutputSize());
  const int64_t height = size[0], width = size[1], pixels = height * width;
  hr_field_layout field = Named("image", SlotDType(spec.recipe.dtype), spec.batch_size);
  field.ndim = 4;
  field.shape[1] = 3;
  field.shape[2] = height;
  field.shape[3] = width;
  const bool planes = spec.recipe.memory_format == MemoryFormat::kContiguous;
  field.strides[0] = 3 * pixels;
  field.strides[1] = planes ? pixels : 1;
  field.strides[2] = planes ? width : 3 * width;
  field.strides[3] = planes ? 1 : 3;
  const double bytes = 3.0 * static_cast<double>(pixels) * DTypeBytes(spec.recipe.dtype) * spec.batch_size;
  if (bytes > static_cast<double>(kMaxSlotBytes)) {
    return absl::InvalidArgumentError(absl::StrCat("batch_size ", spec.batch_size, " of ", height, " × ", width,
                                                   " images needs ", bytes, " bytes; at most ", kMaxSlotBytes,
                                                   " are possible"));
  }
  field.bytes = static_cast<uint64_t>(bytes);
  return field;
}

absl::StatusOr<hr_field_layout> MakeField(const SessionSpec& spec, const Field& description) {
  const auto batch = static_cast<uint64_t>(spec.batch_size);
  hr_field_layout field = Named(description.name, HR_INT64, spec.batch_size);
  field.bytes = 8 * batch;
  switch (description.kind) {
    case FieldKind::kImage:
      return ImageField(spec);
    case FieldKind::kInt64:
      return field;
    case FieldKind::kFloat64:
      field.dtype = HR_FLOAT64;
      return field;
    case FieldKind::kText:
      break;
  }
  if (description.max_bytes > kMaxTextBytes / batch) {
    return absl::InvalidArgumentError(absl::StrCat("batch_size ", batch, ": the longest `", description.name, "` has ",
                                                   description.max_bytes, " bytes, and a batch's texts must fit into ",
                                                   kMaxTextBytes));
  }
  field.dtype = HR_TEXT;
  field.bytes = 4 * batch + batch * description.max_bytes;
  return field;
}

}  // namespace

absl::StatusOr<BatchLayout> MakeBatchLayout(const SessionSpec& spec) {
  BatchLayout layout;
  for (const std::string& name : spec.fields) {
    const int number = spec.dataset->FindField(name);
    HEADRACE_ASSIGN_OR_RETURN(hr_field_layout field,
                              MakeField(spec, spec.dataset->fields()[static_cast<size_t>(number)]));
    layout.fields.push_back(field);
    layout.dataset_fields.push_back(number);
  }
  hr_field_layout index = Named("index", HR_INT64, spec.batch_size);
  index.bytes = 8 * static_cast<uint64_t>(spec.batch_size);
  layout.fields.push_back(index);
  layout.dataset_fields.push_back(-1);

  uint64_t end = 0;
  for (const bool images : {true, false}) {
    for (size_t i = 0; i < layout.fields.size(); ++i) {
      hr_field_layout& field = layout.fields[i];
      if ((field.ndim == 4) != images) continue;
      if (images && spec.engine == Engine::kGpu) {
        layout.device_field = static_cast<int>(i);
        layout.device_slot_bytes = RoundUp(field.bytes, kPage);
        continue;
      }
      field.offset = RoundUp(end, kAlignment);
      end = field.offset + field.bytes;
    }
  }
  layout.slot_bytes = RoundUp(end + HR_ERROR_BYTES, kPage);
  layout.error_offset = layout.slot_bytes - HR_ERROR_BYTES;
  if (layout.slot_bytes > kMaxSlotBytes) {
    return absl::InvalidArgumentError(absl::StrCat("batch_size ", spec.batch_size, " needs ", layout.slot_bytes,
                                                   " bytes a batch; at most ", kMaxSlotBytes, " are possible"));
  }
  return layout;
}

}  // namespace headrace
