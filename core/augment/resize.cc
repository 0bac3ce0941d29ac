#include "core/augment/resize.h"

#include <algorithm>

#include "core/augment/aligned.h"
#include "core/augment/filter.h"
#include "core/augment/horizontal_table.h"
#include "core/augment/resize_kernels.h"

namespace headrace {
namespace {

Span Columns(const Rect& rect) { return {rect.left, rect.left + rect.width}; }
Span Rows(const Rect& rect) { return {rect.top, rect.top + rect.height}; }

// Makes `rows` at least n long. Grown memory keeps no contents that anybody needs.
template <typename T>
T* Grown(AlignedVector<T>& memory, size_t n) {
  if (memory.size() < n) memory.resize(n);
  return memory.data();
}

}  // namespace

// Pillow 13's rule.
bool VerticalFirst(const ResizeJob& job) {
  return job.in_height > job.out_height &&
         job.in_height - job.out_height > 2 * (int64_t{job.in_width} - job.out_width);
}

Rect ResizeSource(const ResizeJob& job) {
  Span columns = Columns(job.window);
  Span rows = Rows(job.window);
  if (job.in_width != job.out_width)
    columns = FilterSource(job.interpolation, job.in_width, job.out_width, columns);
  if (job.in_height != job.out_height)
    rows = FilterSource(job.interpolation, job.in_height, job.out_height, rows);
  return {rows.begin, columns.begin, rows.size(), columns.size()};
}

class Resizer::Impl {
 public:
  void Run(const ResizeJob& job, const RgbImage& pixels, const Rect& held, RowSink sink) {
    const Rect source = ResizeSource(job);
    const size_t stride = PlaneStride(source.width);
    uint8_t* planes = Grown(split_row_, 3 * stride + kRowPadding);
    const auto split = [&](int row) -> PlanarRow {
      const ptrdiff_t column = source.left - held.left;
      ActiveResizeKernels().split_row(pixels.row(row - held.top) + 3 * column, source.width,
                                      planes);
      return {planes, stride};
    };
    Run(job, split, sink, [](int, const BlendedRow&) { return false; });
  }

  void Run(const ResizeJob& job, RowSource source, RowSink sink, BlendedSink blended_sink) {
    kernels_ = &ActiveResizeKernels();
    source_ = ResizeSource(job);
    if (job.interpolation == Interpolation::kNearest) return Nearest(job, source, sink);
    const bool horizontal = job.in_width != job.out_width;
    const bool vertical = job.in_height != job.out_height;
    const bool vertical_first = vertical && (!horizontal || VerticalFirst(job));
    if (horizontal)
      PrepareColumns(
          {job.interpolation, job.in_width, job.out_width, Columns(job.window), job.mirrored});
    if (vertical) {
      PrepareRows({job.interpolation, job.in_height, job.out_height, Rows(job.window), false});
      StartRing(vertical_first ? source_.width : job.window.width);
    }
    const int inner_width = vertical_first ? source_.width : job.window.width;
    const bool blended_is_last = horizontal ? !vertical_first : !job.mirrored;
    uint8_t* inner = Grown(inner_row_, 3 * PlaneStride(inner_width) + kRowPadding);
    uint8_t* outer = Grown(outer_row_, 3 * PlaneStride(job.window.width) + kRowPadding);
    for (int row = 0; row < job.window.height; ++row) {
      PlanarRow pixels = {inner, PlaneStride(inner_width)};
      if (vertical) {
        const BlendedRow blended = Gather(row, horizontal && !vertical_first, source);
        if (blended_is_last && blended_sink(row, blended)) continue;
        kernels_->blend_rows(blended.rows, blended.weights, blended.taps, blended.bias, ring_lanes_,
                             inner);
      } else {
        pixels = source(source_.top + row);
      }
      if (horizontal && (vertical_first || !vertical)) {
        kernels_->resize_row(table_, pixels.planes, pixels.stride, outer);
        pixels.planes = outer;
      } else if (!horizontal && job.mirrored) {
        kernels_->mirror_row(pixels.planes, pixels.stride, inner_width, outer);
        pixels.planes = outer;
      }
      sink(row, pixels.planes);
    }
  }

 private:
  // Everything that a filter depends on.
  struct AxisKey {
    Interpolation interpolation = Interpolation::kNearest;
    int in = 0, out = 0;
    Span window;
    bool mirrored = false;
    friend bool operator==(const AxisKey&, const AxisKey&) = default;
  };

  // Many images have the size of the one before; a filter costs 3 µs.
  void PrepareColumns(const AxisKey& key) {
    if (key == columns_key_ && kernels_ == columns_kernels_) return;
    columns_kernels_ = kernels_;
    ComputeFilter(key.interpolation, key.in, key.out, key.window, &column_filter_);
    MakeHorizontalTable(column_filter_, key.mirrored, source_.left, kernels_->lanes,
                        kernels_->dots_of_bytes, &table_);
    columns_key_ = key;
  }
  void PrepareRows(const AxisKey& key) {
    if (key == rows_key_) return;
    ComputeFilter(key.interpolation, key.in, key.out, key.window, &row_filter_);
    rows_key_ = key;
  }

  // The ring holds as many spread rows as an output row blends; input row r lies at r modulo that
  // number.
  void StartRing(int width) {
    ring_lanes_ = 3 * PlaneStride(width);
    ring_rows_ = row_filter_.taps;
    next_row_ = 0;
    Grown(ring_, static_cast<size_t>(ring_rows_) * ring_lanes_);
    blended_.resize(static_cast<size_t>(ring_rows_));
    weights_.resize(static_cast<size_t>(ring_rows_));
  }
  int32_t* RingRow(int row) {
    return ring_.data() + static_cast<size_t>(row % ring_rows_) * ring_lanes_;
  }

  // What output row `row` of the vertical pass is made of. `resized`: its input rows go through the
  // horizontal pass first.
  BlendedRow Gather(int row, bool resized, RowSource source) {
    const size_t i = static_cast<size_t>(row);
    const int begin = row_filter_.start[i];
    const int count = row_filter_.count[i];
    for (next_row_ = std::max(next_row_, begin); next_row_ < begin + count; ++next_row_) {
      const PlanarRow pixels = source(next_row_);
      if (resized) {
        kernels_->resize_row_spread(table_, pixels.planes, pixels.stride, RingRow(next_row_));
      } else {
        kernels_->spread_row(pixels.planes, pixels.stride, ring_lanes_ / 3, RingRow(next_row_));
      }
    }
    const int32_t* weights = row_filter_.weights.data() + i * static_cast<size_t>(row_filter_.taps);
    int32_t sum = 0;
    bool overshoots = false;
    for (int t = 0; t < count; ++t) {
      blended_[static_cast<size_t>(t)] = RingRow(begin + t);
      weights_[static_cast<size_t>(t)] = SpreadWeight(weights[t]);
      sum += weights[t];
      overshoots |= weights[t] < 0;
    }
    return {blended_.data(), weights_.data(), count, BlendBias(sum), ring_lanes_ / 3, overshoots};
  }

  void Nearest(const ResizeJob& job, RowSource source, RowSink sink) {
    ComputeNearest(job.in_width, job.out_width, Columns(job.window), &columns_);
    ComputeNearest(job.in_height, job.out_height, Rows(job.window), &rows_);
    if (job.mirrored) std::reverse(columns_.begin(), columns_.end());
    const size_t stride = PlaneStride(job.window.width);
    uint8_t* planes = Grown(outer_row_, 3 * stride + kRowPadding);
    for (size_t row = 0; row < rows_.size(); ++row) {
      const PlanarRow pixels = source(rows_[row]);
      for (size_t c = 0; c < 3; ++c) {
        for (size_t x = 0; x < columns_.size(); ++x)
          planes[c * stride + x] = pixels.planes[c * pixels.stride + columns_[x] - source_.left];
      }
      sink(static_cast<int>(row), planes);
    }
  }

  const ResizeKernels* kernels_ = nullptr;
  Rect source_;
  AxisKey columns_key_, rows_key_;
  const ResizeKernels* columns_kernels_ = nullptr;  // that the table was made for
  AxisFilter column_filter_, row_filter_;
  HorizontalTable table_;
  AlignedVector<uint8_t> split_row_, inner_row_, outer_row_;
  AlignedVector<int32_t> ring_;
  size_t ring_lanes_ = 0;
  int ring_rows_ = 0, next_row_ = 0;
  std::vector<const int32_t*> blended_;
  std::vector<int32_t> weights_;
  std::vector<int32_t> columns_, rows_;  // kNearest
};

Resizer::Resizer() : impl_(std::make_unique<Impl>()) {}
Resizer::~Resizer() = default;

void Resizer::Run(const ResizeJob& job, RowSource source, RowSink sink) {
  impl_->Run(job, source, sink, [](int, const BlendedRow&) { return false; });
}

void Resizer::Run(const ResizeJob& job, RowSource source, RowSink sink, BlendedSink blended) {
  impl_->Run(job, source, sink, blended);
}

void Resizer::Run(const ResizeJob& job, const RgbImage& pixels, const Rect& held, RowSink sink) {
  impl_->Run(job, pixels, held, sink);
}

}  // namespace headrace
