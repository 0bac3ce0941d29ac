#include "core/augment/horizontal_table.h"

#include <algorithm>

namespace headrace {
namespace {

constexpr int kWindowBytes = 16;
constexpr size_t kBlock = 4;         // outputs
constexpr uint8_t kZeroByte = 0x80;  // in a shuffle: gives 0

int16_t High(int32_t weight) { return static_cast<int16_t>(weight >> kWeightLowBits); }
int16_t Low(int32_t weight) { return static_cast<int16_t>(weight & ((1 << kWeightLowBits) - 1)); }

// The filter's output that becomes output i.
size_t FilterOutput(size_t i, size_t outputs, bool mirrored) {
  return mirrored ? outputs - 1 - i : i;
}

// The inputs of a block: outputs [begin, end).
Span BlockSource(const AxisFilter& filter, size_t begin, size_t end, bool mirrored) {
  // Starts and ends grow with the filter's outputs.
  const size_t n = filter.start.size();
  size_t first = FilterOutput(begin, n, mirrored);
  size_t last = FilterOutput(end - 1, n, mirrored);
  if (mirrored) std::swap(first, last);
  return {filter.start[first], filter.start[last] + filter.count[last]};
}

void MakeWindows(const AxisFilter& filter, bool mirrored, int source_begin,
                 HorizontalTable* table) {
  const size_t n = filter.start.size();
  const size_t taps = static_cast<size_t>(filter.taps);
  table->pairs = (taps + 1) / 2;
  const size_t slots = table->pairs * table->blocks;
  table->start.assign(table->blocks, 0);
  table->shuffle.assign(slots * kWindowBytes, kZeroByte);
  table->high.assign(slots * 2 * kBlock, 0);
  table->low.assign(slots * 2 * kBlock, 0);
  for (size_t block = 0; block * kBlock < n; ++block) {
    const size_t first = block * kBlock;
    const size_t end = std::min(first + kBlock, n);
    const int begin = BlockSource(filter, first, end, mirrored).begin;
    table->start[block] = begin - source_begin;
    for (size_t i = first; i < end; ++i) {
      const size_t output = FilterOutput(i, n, mirrored);
      const int32_t* weights = filter.weights.data() + output * taps;
      const int count = filter.count[output];
      int from = filter.start[output] - begin;
      size_t lane = 2 * kBlock * block + 2 * (i - first);  // of the first pair
      for (int t = 0; t < count; ++t, ++from) {
        const size_t at = lane + static_cast<size_t>(t & 1);
        table->shuffle[2 * at] = static_cast<uint8_t>(from);
        table->high[at] = High(weights[t]);
        table->low[at] = Low(weights[t]);
        if ((t & 1) != 0) lane += 2 * kBlock * table->blocks;
      }
    }
  }
}

void MakeDots(const AxisFilter& filter, bool mirrored, int source_begin, HorizontalTable* table) {
  const size_t n = filter.start.size();
  table->taps = (static_cast<size_t>(filter.taps) + 7) & ~size_t{7};
  table->start.resize(n);
  table->high.assign(n * table->taps, 0);
  table->low.assign(n * table->taps, 0);
  for (size_t i = 0; i < n; ++i) {
    const size_t output = FilterOutput(i, n, mirrored);
    table->start[i] = filter.start[output] - source_begin;
    const int32_t* weights = filter.weights.data() + output * static_cast<size_t>(filter.taps);
    for (size_t t = 0; t < static_cast<size_t>(filter.count[output]); ++t) {
      table->high[i * table->taps + t] = High(weights[t]);
      table->low[i * table->taps + t] = Low(weights[t]);
    }
  }
}

}  // namespace

void MakeHorizontalTable(const AxisFilter& filter, bool mirrored, int source_begin,
                         HorizontalTable* table) {
  const size_t n = filter.start.size();
  table->outputs = static_cast<int>(n);
  table->blocks = PlaneStride(table->outputs) / kBlock;
  table->overshoots = false;
  for (int32_t weight : filter.weights) table->overshoots |= weight < 0;
  bool fits = true;
  for (size_t first = 0; first < n && fits; first += kBlock) {
    fits = BlockSource(filter, first, std::min(first + kBlock, n), mirrored).size() <= kWindowBytes;
  }
  table->kind = fits ? HorizontalTable::Kind::kWindows : HorizontalTable::Kind::kDots;
  if (fits) {
    MakeWindows(filter, mirrored, source_begin, table);
  } else {
    MakeDots(filter, mirrored, source_begin, table);
  }
}

}  // namespace headrace
