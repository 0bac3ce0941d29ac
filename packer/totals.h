// Sums over the samples of a dataset, from their rows.
#pragma once

#include <cstdint>
#include <vector>

#include "core/shard/dataset.h"

namespace headrace {

class Totals {
 public:
  Totals(const std::vector<Field>& fields, size_t num_classes);

  void Add(const SampleRow& row);

  uint64_t samples() const { return samples_; }
  uint64_t damaged() const { return damaged_; }
  uint64_t transcoded() const { return transcoded_; }
  // The longest value and the sum, per field; 0 for scalars.
  const std::vector<uint64_t>& max_bytes() const { return max_bytes_; }
  const std::vector<uint64_t>& bytes() const { return bytes_; }
  // Whether a sample has this label.
  bool has_class(size_t label) const { return classes_[label]; }

 private:
  int label_field_ = -1;
  uint64_t samples_ = 0, damaged_ = 0, transcoded_ = 0;
  std::vector<uint64_t> max_bytes_, bytes_;
  std::vector<bool> classes_;
};

}  // namespace headrace
