#include "core/decode/avif/avif_decoder.h"

#include <dav1d/dav1d.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/decode/avif/avif_planes.h"
#include "core/decode/avif/yuv_to_rgb.h"

namespace headrace {
namespace {

// A picture has one frame, or a few that others refer to; a byte or two of each may cost as much time as all its pixels.
constexpr int kMaxFrames = 64;
constexpr int kMinGridTile = 64;  // px

absl::Status Invalid(const std::string& reason) { return absl::InvalidArgumentError(absl::StrCat("AVIF: ", reason)); }
absl::Status TooLarge() { return Invalid("the AV1 picture is too large"); }
// Of dav1d's error: ERANGE is its word for a frame above the limit.
absl::Status Broken(int error) {
  return error == DAV1D_ERR(ERANGE) ? TooLarge() : Invalid("the picture's data are broken");
}

// A decoded picture, freed with its owner.
class Picture {
 public:
  Picture() = default;
  ~Picture() { dav1d_picture_unref(&picture_); }
  Picture(const Picture&) = delete;
  Picture& operator=(const Picture&) = delete;
  Dav1dPicture* get() { return &picture_; }
  const Dav1dPicture* operator->() const { return &picture_; }

 private:
  Dav1dPicture picture_ = {};
};

// Frames in a chain of OBUs (AV1 specification, 5.3); what is broken ends it.
int CountFrames(absl::Span<const uint8_t> data) {
  int frames = 0;
  size_t at = 0;
  while (at < data.size()) {
    const uint8_t head = data[at];
    const int type = head >> 3 & 15;
    if (type == 3 || type == 6) ++frames;  // frame header, frame
    at += (head & 4) != 0 ? 2 : 1;
    if ((head & 2) == 0) break;  // the last one: it has no size
    uint64_t size = 0;
    for (int shift = 0; shift < 56 && at < data.size(); shift += 7) {
      const uint8_t byte = data[at++];
      size |= uint64_t{byte & 127u} << shift;
      if ((byte & 128) == 0) break;
    }
    if (size > data.size() - std::min(at, data.size())) break;
    at += static_cast<size_t>(size);
  }
  return frames;
}

// Gives dav1d its frames' memory, of as many pixels as the container says; what a frame has more is taken from `spare`.
struct Allowance {
  uint64_t pixels = 0;
  uint64_t* spare = nullptr;
};

int Allocate(Dav1dPicture* picture, void* cookie) {
  Allowance& allowance = *static_cast<Allowance*>(cookie);
  const uint64_t pixels = static_cast<uint64_t>(picture->p.w) * static_cast<uint64_t>(picture->p.h);
  const uint64_t more = pixels - std::min(pixels, allowance.pixels);
  if (more > *allowance.spare) return DAV1D_ERR(ERANGE);
  *allowance.spare -= more;
  allowance.pixels += more;
  // Sides and alignment are what dav1d's picture.h asks for; rows of 1,024 bytes would share lines of the cache.
  const bool has_chroma = picture->p.layout != DAV1D_PIXEL_LAYOUT_I400, halves_rows = picture->p.layout == DAV1D_PIXEL_LAYOUT_I420;
  const bool halves_columns = halves_rows || picture->p.layout == DAV1D_PIXEL_LAYOUT_I422;
  const auto up = [](int side) { return (static_cast<size_t>(side) + 127) / 128 * 128; };
  size_t strides[2] = {up(picture->p.w) * (picture->p.bpc > 8 ? 2 : 1), 0};
  strides[1] = has_chroma ? strides[0] >> (halves_columns ? 1 : 0) : 0;
  for (size_t& stride : strides) stride += stride > 0 && stride % 1024 == 0 ? DAV1D_PICTURE_ALIGNMENT : 0;
  const size_t luma = strides[0] * up(picture->p.h), chroma = strides[1] * (up(picture->p.h) >> (halves_rows ? 1 : 0));
  constexpr std::align_val_t kAlignment{DAV1D_PICTURE_ALIGNMENT};
  auto* memory = static_cast<uint8_t*>(::operator new(luma + 2 * chroma + DAV1D_PICTURE_ALIGNMENT, kAlignment, std::nothrow));
  if (memory == nullptr) return DAV1D_ERR(ENOMEM);
  for (int plane = 0; plane < 2; ++plane) picture->stride[plane] = static_cast<ptrdiff_t>(strides[plane]);
  picture->data[0] = picture->allocator_data = memory;
  picture->data[1] = has_chroma ? memory + luma : nullptr;
  picture->data[2] = has_chroma ? memory + luma + chroma : nullptr;
  return 0;
}

void Release(Dav1dPicture* picture, void*) {
  ::operator delete(picture->allocator_data, std::align_val_t{DAV1D_PICTURE_ALIGNMENT});
}

struct CloseDecoder {
  void operator()(Dav1dContext* context) const { dav1d_close(&context); }
};

absl::Status DecodeTile(const AvifTile& tile, uint64_t* spare_pixels, Picture* picture) {
  Allowance allowance = {uint64_t{tile.width} * tile.height, spare_pixels};
  Dav1dSettings settings;
  dav1d_default_settings(&settings);
  settings.n_threads = 1;
  settings.max_frame_delay = 1;
  settings.operating_point = tile.operating_point;
  settings.all_layers = tile.layer >= 0 ? 1 : 0;
  settings.frame_size_limit = static_cast<unsigned>(std::max(allowance.pixels, *spare_pixels));
  settings.allocator = {&allowance, Allocate, Release};
  settings.logger.callback = nullptr;
  Dav1dContext* opened = nullptr;
  if (dav1d_open(&opened, &settings) != 0) return Invalid("dav1d does not start");
  const std::unique_ptr<Dav1dContext, CloseDecoder> context(opened);

  size_t size = 0;
  for (const absl::Span<const uint8_t> piece : tile.pieces) size += piece.size();
  Dav1dData data = {};
  uint8_t* to = size == 0 ? nullptr : dav1d_data_create(&data, size);
  if (to == nullptr) return Broken(0);
  const absl::Span<const uint8_t> whole(to, size);
  for (const absl::Span<const uint8_t> piece : tile.pieces) to = std::copy(piece.begin(), piece.end(), to);
  const std::unique_ptr<Dav1dData, decltype(&dav1d_data_unref)> release(&data, &dav1d_data_unref);
  if (CountFrames(whole) > kMaxFrames) return Invalid(absl::StrCat("more than ", kMaxFrames, " frames in one picture"));

  for (;;) {
    if (data.sz > 0) {
      const int sent = dav1d_send_data(context.get(), &data);
      if (sent < 0 && sent != DAV1D_ERR(EAGAIN)) return Broken(sent);
    }
    const int got = dav1d_get_picture(context.get(), picture->get());
    if (got == DAV1D_ERR(EAGAIN) && data.sz > 0) continue;
    if (got < 0) return Broken(got);
    if (tile.layer < 0 || (*picture)->frame_hdr->spatial_id == tile.layer) break;
    dav1d_picture_unref(picture->get());
  }
  // What comes behind the picture is decoded too, as libavif does, and must not be broken.
  for (int got = 0; got == 0;) {
    Picture ignored;
    got = dav1d_get_picture(context.get(), ignored.get());
    if (got < 0 && got != DAV1D_ERR(EAGAIN)) return Broken(got);
  }
  return absl::OkStatus();
}

Chroma ChromaOf(Dav1dPixelLayout layout) {
  switch (layout) {
    case DAV1D_PIXEL_LAYOUT_I400: return Chroma::k400;
    case DAV1D_PIXEL_LAYOUT_I420: return Chroma::k420;
    case DAV1D_PIXEL_LAYOUT_I422: return Chroma::k422;
    default: return Chroma::k444;
  }
}

AvifColour ColourOf(const Picture& picture) {
  const Dav1dSequenceHeader& header = *picture->seq_hdr;
  return {static_cast<int>(header.pri), static_cast<int>(header.trc), static_cast<int>(header.mtrx), header.color_range != 0};
}

Planes PlanesOf(const Picture& picture) {
  Planes planes;
  planes.width = picture->p.w;
  planes.height = picture->p.h;
  planes.bits = picture->p.bpc;
  planes.chroma = ChromaOf(picture->p.layout);
  planes.colour = ColourOf(picture);
  for (int plane = 0; plane < (planes.chroma == Chroma::k400 ? 1 : 3); ++plane) {
    planes.data[plane] = static_cast<const uint8_t*>(picture->data[plane]);
    planes.strides[plane] = picture->stride[plane == 0 ? 0 : 1];
  }
  return planes;
}

// MIAF (ISO/IEC 23000-22), 7.3.11.4.2, which libavif enforces. `is_alpha`: chroma does not count there.
absl::Status CheckGrid(const AvifPlanes& grid, const Planes& tile, bool is_alpha) {
  const auto width = static_cast<uint32_t>(tile.width), height = static_cast<uint32_t>(tile.height);
  if (uint64_t{width} * grid.columns < grid.width || uint64_t{height} * grid.rows < grid.height ||
      uint64_t{width} * (grid.columns - 1) >= grid.width || uint64_t{height} * (grid.rows - 1) >= grid.height) {
    return Invalid("the tiles of the grid do not cover the picture");
  }
  const bool odd_columns = tile.HalvesColumns(1) && (width % 2 != 0 || grid.width % 2 != 0);
  const bool odd_rows = tile.HalvesRows(1) && (height % 2 != 0 || grid.height % 2 != 0);
  if (tile.width < kMinGridTile || tile.height < kMinGridTile || (!is_alpha && tile.chroma != Chroma::k400 && (odd_columns || odd_rows))) {
    return Invalid("the tiles of the grid are too small or odd");
  }
  return absl::OkStatus();
}

// A decoded picture, with memory for what is made of it.
struct Decoded {
  Picture picture;
  std::vector<uint8_t> full_range, scaled;
};

// Of the container's size. The result points into `decoded`.
absl::StatusOr<Planes> DecodeScaled(const AvifTile& tile, bool is_alpha, uint64_t* spare_pixels, Decoded* decoded) {
  HEADRACE_RETURN_IF_ERROR(DecodeTile(tile, spare_pixels, &decoded->picture));
  Planes planes = PlanesOf(decoded->picture);
  if (is_alpha) {
    std::fill(planes.data + 1, planes.data + 3, nullptr);
    if (!planes.colour.full_range) planes = FullRange(planes, &decoded->full_range);
  }
  return Scale(planes, tile.width, tile.height, &decoded->scaled);
}

// Colour, or alpha, of the whole picture. The result points into `decoded`, or, of a grid, into `memory`.
absl::StatusOr<Planes> DecodePlanes(const AvifPlanes& described, bool is_alpha, uint64_t spare_pixels, Decoded* decoded,
                                    std::vector<uint8_t>* memory) {
  if (described.columns == 0) return DecodeScaled(described.tiles[0], is_alpha, &spare_pixels, decoded);
  Planes first, whole;
  for (size_t number = 0; number < described.tiles.size(); ++number) {
    Decoded of_tile;
    HEADRACE_ASSIGN_OR_RETURN(const Planes tile, DecodeScaled(described.tiles[number], is_alpha, &spare_pixels, &of_tile));
    if (number == 0) {
      HEADRACE_RETURN_IF_ERROR(CheckGrid(described, tile, is_alpha));
      first = tile;
      whole = LayOut(tile, described.width, described.height, memory);
    }
    if (tile.width != first.width || tile.height != first.height || tile.bits != first.bits ||
        (!is_alpha && (tile.chroma != first.chroma || tile.colour != first.colour))) {
      return Invalid("the tiles of the grid differ");
    }
    const int column = static_cast<int>(number % described.columns), row = static_cast<int>(number / described.columns);
    CopyTile(tile, column, row, whole, memory->data());
  }
  return whole;
}

// Bytes of one pixel, as libavif gives them (`given`) and as Pillow takes them from its size and mode, which are the container's.
struct PixelBytes {
  int given, taken;
};

// Where the container has another size than a grid, or is grey alone, Pillow takes libavif's bytes one after another for what the
// container says, and so do we.
absl::Status Reinterpret(const YuvImage& image, PixelBytes bytes, const ImageInfo& info, const Rect& region, RgbImage* out) {
  const int64_t width = info.width, row_bytes = int64_t{image.width} * bytes.given;
  if (width * info.height * bytes.taken > row_bytes * image.height) return Invalid("the picture is smaller than the container says");
  const auto place = [&](int64_t y, int64_t x) { return (y * width + x) * bytes.taken; };
  const int64_t last = place(region.top + region.height - 1, region.left + region.width) - 1;
  Rect rows = {static_cast<int>(place(region.top, region.left) / row_bytes), 0, 0, image.width};
  rows.height = static_cast<int>(last / row_bytes) + 1 - rows.top;
  RgbImage rgb;
  HEADRACE_RETURN_IF_ERROR(YuvToRgb(image, rows, &rgb));
  out->Resize(region.width, region.height);
  for (int y = 0; y < region.height; ++y) {
    uint8_t* to = out->row(y);
    for (int x = 0; x < region.width; ++x) {
      for (int channel = 0; channel < 3; ++channel) {
        const int64_t at = place(region.top + y, region.left + x) + (bytes.taken == 1 ? 0 : channel) - rows.top * row_bytes;
        *to++ = rgb.pixels[static_cast<size_t>(at / bytes.given * 3 + (bytes.given == 1 ? 0 : at % bytes.given))];
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ImageInfo> ReadAvifHeader(absl::Span<const uint8_t> bytes) {
  HEADRACE_ASSIGN_OR_RETURN(const AvifPicture picture, ParseAvif(bytes));
  ImageInfo info;
  info.format = ImageFormat::kAvif;
  info.width = picture.width;
  info.height = picture.height;
  info.components = static_cast<uint8_t>((picture.monochrome ? 1 : 3) + (picture.alpha.tiles.empty() ? 0 : 1));
  info.orientation = picture.orientation;
  return info;
}

absl::Status DecodeAvif(absl::Span<const uint8_t> bytes, const ImageInfo& info, const Rect& region, uint64_t max_scaled_pixels,
                        std::vector<uint8_t>* scratch, RgbImage* out) {
  HEADRACE_ASSIGN_OR_RETURN(const AvifPicture described, ParseAvif(bytes));
  if (described.width != info.width || described.height != info.height) {
    return Invalid("the picture has another size than the index says");
  }
  const uint64_t pixels = uint64_t{described.colour.width} * described.colour.height;
  if (pixels > std::max(uint64_t{info.width} * info.height, max_scaled_pixels)) return TooLarge();
  Decoded colour_memory, alpha_memory;
  std::vector<uint8_t> alpha_grid;
  HEADRACE_ASSIGN_OR_RETURN(const Planes colour, DecodePlanes(described.colour, false, max_scaled_pixels, &colour_memory, scratch));
  const bool has_alpha = !described.alpha.tiles.empty();
  YuvImage image;
  if (has_alpha) {
    HEADRACE_ASSIGN_OR_RETURN(const Planes alpha,
                              DecodePlanes(described.alpha, true, max_scaled_pixels, &alpha_memory, &alpha_grid));
    if (alpha.bits != colour.bits) return Invalid("alpha has another depth than the colours");
    image.alpha = alpha.data[0];
    image.alpha_stride = alpha.strides[0];
    image.premultiplied = described.premultiplied;
  }
  image.width = colour.width;
  image.height = colour.height;
  image.bits = colour.bits;
  image.chroma = colour.chroma;
  image.colour = described.has_colour_property ? described.property : colour.colour;
  image.y = colour.data[0];
  image.u = colour.data[1];
  image.v = colour.data[2];
  image.y_stride = colour.strides[0];
  image.uv_stride = colour.strides[1];
  const PixelBytes pixel = {has_alpha ? 4 : image.chroma == Chroma::k400 ? 1 : 3, has_alpha ? 4 : described.monochrome ? 1 : 3};
  const bool fits = described.colour.width == info.width && described.colour.height == info.height;
  return fits && pixel.given == pixel.taken ? YuvToRgb(image, region, out) : Reinterpret(image, pixel, info, region, out);
}

}  // namespace headrace
