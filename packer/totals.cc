#include "packer/totals.h"

#include <algorithm>

namespace headrace {

Totals::Totals(const std::vector<Field>& fields, size_t num_classes)
    : max_bytes_(fields.size()), bytes_(fields.size()), classes_(num_classes) {
  for (size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].name == "label" && fields[i].kind == FieldKind::kInt64) label_field_ = static_cast<int>(i);
  }
}

void Totals::Add(const SampleRow& row) {
  ++samples_;
  damaged_ += row.image.damaged;
  transcoded_ += row.image.transcoded;
  for (size_t i = 0; i < row.values.size(); ++i) {
    const uint64_t length = row.values[i].location.length;
    max_bytes_[i] = std::max(max_bytes_[i], length);
    bytes_[i] += length;
  }
  if (label_field_ < 0) return;
  const int64_t label = row.values[static_cast<size_t>(label_field_)].i64;
  if (label >= 0 && static_cast<size_t>(label) < classes_.size()) classes_[static_cast<size_t>(label)] = true;
}

}  // namespace headrace
