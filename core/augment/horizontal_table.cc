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
    const size_t window = first / table->shared * table->shared;
    const int begin =
        BlockSource(filter, window, std::min(window + table->shared, n), mirrored).begin;
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
  const size_t parts = table->vector_outputs / 4;
  int source_end = 0, most = 0;
  for (size_t i = 0; i < n; ++i) {
    source_end = std::max(source_end, filter.start[i] + filter.count[i]);
    most = std::max(most, filter.count[i]);
  }
  table->taps = (static_cast<size_t>(most) + 7) & ~size_t{7};
  // An output at the right edge has fewer taps than others; it begins further left, so that none looks far behind the row.
  const int last_start = std::max(0, source_end - source_begin - static_cast<int>(table->taps));
  const size_t padded = PlaneStride(table->outputs);
  table->start.assign(padded, 0);
  table->high.assign(padded * table->taps, 0);
  table->low.assign(padded * table->taps, 0);
  for (size_t i = 0; i < n; ++i) {
    const size_t output = FilterOutput(i, n, mirrored);
    // Part p of a vector makes outputs 4·p to 4·p + 3 of the vector's, one after the other.
    const size_t vector = i / table->vector_outputs, lane = i % table->vector_outputs;
    const size_t group = 4 * vector + lane % 4, part = lane / 4;
    const int start = std::min(filter.start[output] - source_begin, last_start);
    const auto skipped = static_cast<size_t>(filter.start[output] - source_begin - start);
    table->start[group * parts + part] = start;
    const int32_t* weights = filter.weights.data() + output * static_cast<size_t>(filter.taps);
    for (size_t t = 0; t < static_cast<size_t>(filter.count[output]); ++t) {
      const size_t tap = skipped + t;
      const size_t at = 8 * (group * parts * table->taps / 8 + tap / 8 * parts + part) + tap % 8;
      table->high[at] = High(weights[t]);
      table->low[at] = Low(weights[t]);
    }
  }
}

constexpr size_t kDigitOutputs = 16;
constexpr int kDigitBytes = 64;

void MakeDigits(const AxisFilter& filter, bool mirrored, int source_begin, HorizontalTable* table) {
  const size_t n = filter.start.size(), taps = static_cast<size_t>(filter.taps);
  const size_t groups = PlaneStride(table->outputs) / kDigitOutputs;
  table->quads = (taps + 3) / 4;
  table->start.assign(groups, 0);
  table->shuffle.assign(groups * table->quads * kDigitBytes, 0);
  table->digits.assign(3 * groups * table->quads * kDigitBytes, 0);
  for (size_t group = 0; group < groups; ++group) {
    const size_t first = group * kDigitOutputs;
    const size_t end = std::min(first + kDigitOutputs, n);
    const int begin = BlockSource(filter, first, end, mirrored).begin;
    table->start[group] = begin - source_begin;
    for (size_t i = first; i < end; ++i) {
      const size_t output = FilterOutput(i, n, mirrored);
      const int32_t* const weights = filter.weights.data() + output * taps;
      const size_t count = static_cast<size_t>(filter.count[output]);
      for (size_t t = 0; t < count; ++t) {
        const size_t block = group * table->quads + t / 4, byte = 4 * (i - first) + t % 4;
        table->shuffle[block * kDigitBytes + byte] =
            static_cast<uint8_t>(filter.start[output] - begin + static_cast<int>(t));
        // Signed digits: what a low one is below zero, the next makes up for.
        const auto low = static_cast<int8_t>(weights[t] & 255);
        const int32_t rest = (weights[t] - low) >> 8;
        const auto middle = static_cast<int8_t>(rest & 255);
        int8_t* const digits = table->digits.data() + 3 * block * kDigitBytes + byte;
        digits[0] = static_cast<int8_t>((rest - middle) >> 8);
        digits[kDigitBytes] = middle;
        digits[2 * kDigitBytes] = low;
      }
    }
  }
}

// Whether windows of so many bytes can serve so many outputs each.
bool WindowsServe(const AxisFilter& filter, bool mirrored, size_t outputs, int bytes = kWindowBytes) {
  const size_t n = filter.start.size();
  bool serve = true;
  for (size_t first = 0; first < n && serve; first += outputs) {
    serve =
        BlockSource(filter, first, std::min(first + outputs, n), mirrored).size() <= bytes;
  }
  return serve;
}

}  // namespace

void MakeHorizontalTable(const AxisFilter& filter, bool mirrored, int source_begin,
                         size_t vector_outputs, bool dots_of_bytes, HorizontalTable* table) {
  const size_t n = filter.start.size();
  table->outputs = static_cast<int>(n);
  table->vector_outputs = vector_outputs;
  table->blocks = PlaneStride(table->outputs) / kBlock;
  table->overshoots = false;
  for (int32_t weight : filter.weights) table->overshoots |= weight < 0;
  if (dots_of_bytes && WindowsServe(filter, mirrored, kDigitOutputs, kDigitBytes)) {
    table->kind = HorizontalTable::Kind::kDigits;
    return MakeDigits(filter, mirrored, source_begin, table);
  }
  table->shared = WindowsServe(filter, mirrored, vector_outputs) ? vector_outputs : kBlock;
  if (table->shared > kBlock || WindowsServe(filter, mirrored, kBlock)) {
    table->kind = HorizontalTable::Kind::kWindows;
    MakeWindows(filter, mirrored, source_begin, table);
  } else {
    table->kind = HorizontalTable::Kind::kDots;
    MakeDots(filter, mirrored, source_begin, table);
  }
}

}  // namespace headrace
