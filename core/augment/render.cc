#include "core/augment/render.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "core/augment/aligned.h"
#include "core/augment/horizontal_table.h"
#include "core/augment/pack.h"
#include "core/augment/resize.h"
#include "core/augment/resize_kernels.h"
#include "core/augment/step_plan.h"
#include "core/decode/image_decoder.h"
#include "core/decode/segment/segment_decoder.h"

namespace headrace {
namespace {

// Memory for more pixels than that is given back after the sample: a giant among photographs must
// not stay on the bill of every thread.
constexpr size_t kKeptBytes = 32 << 20;

void Trim(RgbImage* image) {
  if (image->pixels.size() > kKeptBytes) *image = RgbImage();
}

}  // namespace

class SampleRenderer::Impl {
 public:
  explicit Impl(int streams) : streams_(streams) {}

  absl::Status Render(const EncodedImage& image, const Recipe& recipe, const Draw& draw, void* out,
                      std::string* warning) {
    if (!draw.error.empty()) return absl::InvalidArgumentError(draw.error);
    if (!pack_.has_value() || !IsPlanFor(*pack_, recipe)) pack_ = MakePackPlan(recipe);
    kernels_ = &ActiveResizeKernels();
    const ImageInfo& info = *image.info;
    Rect source;
    HEADRACE_RETURN_IF_ERROR(PlanSteps(draw.steps, static_cast<int>(info.oriented_height()),
                                       static_cast<int>(info.oriented_width()), &stages_, &source));
    const Rect stored = StoredRegion(source, info);
    if (image.stored_rows != nullptr)
      *image.stored_rows = static_cast<uint32_t>(stored.top + stored.height);
    bool done = false;
    if (image.entries != nullptr) {
      HEADRACE_ASSIGN_OR_RETURN(done, RenderFromEntries(image, source, out));
      if (done && warning != nullptr) warning->clear();
    }
    if (!done) {
      HEADRACE_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> bytes,
                                image.read(0, image.file_bytes));
      HEADRACE_RETURN_IF_ERROR(
          decoder_.Decode(bytes, info, stored, &image_, warning));
      Compute(info.orientation, source, out);
    }
    Trim(&image_);
    Trim(&other_);
    return absl::OkStatus();
  }

 private:
  // False: the image's library must decode it.
  absl::StatusOr<bool> RenderFromEntries(const EncodedImage& image, const Rect& source, void* out) {
    const ImageInfo& info = *image.info;
    if (image.frame->width != info.width || image.frame->height != info.height) return false;
    const Rect stored = StoredRegion(source, info);
    const absl::StatusOr<ByteRange> range = SegmentDecoder::NeededBytes(*image.entries, stored);
    if (!range.ok()) return false;
    HEADRACE_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> bytes,
                              image.read(range->begin, range->end));
    if (!segments_.has_value()) segments_.emplace(streams_);
    if (!segments_->Begin(*image.entries, *image.frame, bytes, range->begin, stored).ok())
      return false;
    const auto begin = stages_.begin();
    streamed_ =
        info.orientation == 1 &&
        std::all_of(begin, begin + static_cast<ptrdiff_t>(LastResize(stages_)), PassesPixels);
    if (!streamed_) segments_->ReadRows(&image_);
    Compute(info.orientation, source, out);
    streamed_ = false;
    return segments_->Finish().ok();
  }

  // From the decoded pixels, `source` of the oriented image, to the output.
  void Compute(int orientation, const Rect& source, void* out) {
    if (orientation != 1) {
      ApplyOrientation(image_, orientation, &other_);
      std::swap(image_, other_);
    }
    held_ = source;
    mirrored_ = upside_down_ = false;
    const size_t last_resize = LastResize(stages_);
    for (size_t i = 0; i < last_resize; ++i) Apply(stages_[i]);
    if (last_resize < stages_.size()) {
      ResizeInto(last_resize, out);
    } else {
      PackInto(out);
    }
    FinishPacking();
  }

  // Brings `image_` and `held_` behind the step. Flips only wait: most are at the end, where they
  // cost nothing.
  void Apply(const Stage& stage) {
    if (std::holds_alternative<HorizontalFlipStep>(*stage.step)) {
      mirrored_ = !mirrored_;
    } else if (std::holds_alternative<VerticalFlipStep>(*stage.step)) {
      upside_down_ = !upside_down_;
    } else if (ChangesSize(stage)) {
      Flip();
      other_.Resize(stage.window.width, stage.window.height);
      resizer_.Run(MakeResizeJob(stage), image_, held_, [&](int row, const uint8_t* planes) {
        kernels_->merge_row(planes, PlaneStride(stage.window.width), stage.window.width,
                            other_.row(row));
      });
      std::swap(image_, other_);
    } else if (FillsOutside(stage)) {
      Flip();
      Fill(stage);
    }
    held_ = stage.window;  // what was held is what this step needs, neither more nor less
  }

  // Carries out the flips that wait.
  void Flip() {
    if (!mirrored_ && !upside_down_) return;
    // As orientations: 2 mirrors, 4 turns upside down, 3 does both.
    ApplyOrientation(image_, mirrored_ ? (upside_down_ ? 3 : 2) : 4, &other_);
    std::swap(image_, other_);
    mirrored_ = upside_down_ = false;
  }

  // A crop that reaches outside the image.
  void Fill(const Stage& stage) {
    const std::array<uint8_t, 3>& fill = std::get<CropStep>(*stage.step).fill;
    const Rect window = CropWindow(stage);
    other_.Resize(window.width, window.height);
    for (int x = 0; x < window.width; ++x)
      std::copy(fill.begin(), fill.end(), other_.row(0) + 3 * x);
    for (int y = 1; y < window.height; ++y)
      std::memcpy(other_.row(y), other_.row(0), other_.stride());
    const int left = std::max(window.left, 0);
    const int right = std::min(window.left + window.width, stage.in_width);
    const int top = std::max(window.top, 0);
    const int bottom = std::min(window.top + window.height, stage.in_height);
    for (int y = top; y < bottom && left < right; ++y) {
      std::memcpy(other_.row(y - window.top) + 3 * (left - window.left),
                  image_.row(y - held_.top) + 3 * (left - held_.left),
                  3 * static_cast<size_t>(right - left));
    }
    std::swap(image_, other_);
  }

  // The last resize, its rows on their way to the output; what follows are crops inside the image,
  // already in the window, and flips.
  void ResizeInto(size_t last, void* out) {
    Flip();
    ResizeJob job = MakeResizeJob(stages_[last]);
    for (size_t i = last + 1; i < stages_.size(); ++i) {
      if (std::holds_alternative<HorizontalFlipStep>(*stages_[i].step))
        job.mirrored = !job.mirrored;
      if (std::holds_alternative<VerticalFlipStep>(*stages_[i].step)) upside_down_ = !upside_down_;
    }
    const int height = job.window.height;
    // What is held is what the resize needs, so its rows begin where they must.
    const auto source = [&](int row) { return HeldRow(row - held_.top); };
    const auto place = [&](int row) { return upside_down_ ? height - 1 - row : row; };
    const int width = job.window.width;
    resizer_.Run(
        job, source,
        [&](int row, const uint8_t* planes) {
          PackRow(*pack_, {planes, PlaneStride(width)}, place(row), height, width, out);
        },
        [&](int row, const BlendedRow& blended) {
          return PackBlendedRow(*pack_, blended, place(row), height, width, out);
        });
  }

  // Nothing is resized last: `image_` is the output, but for flips.
  void PackInto(void* out) {
    const size_t stride = PlaneStride(held_.width);
    if (flipped_planes_.size() < 3 * stride) flipped_planes_.resize(3 * stride);
    for (int row = 0; row < held_.height; ++row) {
      PlanarRow pixels = HeldRow(row);
      if (mirrored_) {
        kernels_->mirror_row(pixels.planes, pixels.stride, held_.width, flipped_planes_.data());
        pixels = {flipped_planes_.data(), stride};
      }
      PackRow(*pack_, pixels, upside_down_ ? held_.height - 1 - row : row, held_.height,
              held_.width, out);
    }
  }

  // Row `row` of what is held: of `image_`, or as it is decoded.
  PlanarRow HeldRow(int row) {
    if (streamed_) return segments_->Row(row);
    const size_t stride = PlaneStride(held_.width);
    if (planes_.size() < 3 * stride + kRowPadding) planes_.resize(3 * stride + kRowPadding);
    kernels_->split_row(image_.row(row), held_.width, planes_.data());
    return {planes_.data(), stride};
  }

  const int streams_;
  ImageDecoder decoder_;
  std::optional<SegmentDecoder> segments_;  // made when it is needed: 1.5 MB
  bool streamed_ = false;                   // rows come from `segments_`, not from `image_`
  Resizer resizer_;
  const ResizeKernels* kernels_ = nullptr;
  std::optional<PackPlan> pack_;
  std::vector<Stage> stages_;
  RgbImage image_, other_;                       // the image so far, and the next one
  Rect held_;                                    // the part of the whole image that `image_` is
  bool mirrored_ = false, upside_down_ = false;  // flips that wait
  AlignedVector<uint8_t> planes_, flipped_planes_;
};

SampleRenderer::SampleRenderer(int streams) : impl_(std::make_unique<Impl>(streams)) {}
SampleRenderer::~SampleRenderer() = default;

absl::Status SampleRenderer::Render(absl::Span<const uint8_t> bytes, const ImageInfo& info,
                                    const Recipe& recipe, const Draw& draw, void* out,
                                    std::string* warning) {
  const auto whole = [&](uint64_t, uint64_t) {
    return absl::StatusOr<absl::Span<const uint8_t>>(bytes);
  };
  return impl_->Render({&info, bytes.size(), whole}, recipe, draw, out, warning);
}

absl::Status SampleRenderer::Render(const EncodedImage& image, const Recipe& recipe,
                                    const Draw& draw, void* out, std::string* warning) {
  return impl_->Render(image, recipe, draw, out, warning);
}

int DTypeBytes(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
      return 1;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kFloat32:
      return 4;
  }
  return 0;
}

}  // namespace headrace
