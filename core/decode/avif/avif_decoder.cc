#include "core/decode/avif/avif_decoder.h"

#include <dav1d/dav1d.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/decode/avif/yuv_to_rgb.h"

namespace headrace {
namespace {

// A picture has one frame, or a few that others refer to; a byte or two of each may cost as much time as all its pixels.
constexpr int kMaxFrames = 64;
constexpr int kMinGridTile = 64;  // px

absl::Status Invalid(const std::string& reason) { return absl::InvalidArgumentError(absl::StrCat("AVIF: ", reason)); }
absl::Status OtherSize() { return Invalid("the AV1 picture has another size than the container says"); }
// Of dav1d's error: ERANGE is its word for a frame above the limit.
absl::Status Broken(int error) {
  return error == DAV1D_ERR(ERANGE) ? OtherSize() : Invalid("the picture's data are broken");
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

struct CloseDecoder {
  void operator()(Dav1dContext* context) const { dav1d_close(&context); }
};

absl::Status DecodeTile(const AvifTile& tile, Picture* picture) {
  Dav1dSettings settings;
  dav1d_default_settings(&settings);
  settings.n_threads = 1;
  settings.max_frame_delay = 1;
  settings.operating_point = tile.operating_point;
  settings.all_layers = tile.layer >= 0 ? 1 : 0;
  settings.frame_size_limit = static_cast<unsigned>(uint64_t{tile.width} * tile.height);
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
  if ((*picture)->p.w != static_cast<int>(tile.width) || (*picture)->p.h != static_cast<int>(tile.height)) {
    return OtherSize();
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
  return {static_cast<int>(header.pri), static_cast<int>(header.mtrx), header.color_range != 0};
}

// Planes of a decoded picture, or of a grid of them in memory of its own.
struct Planes {
  int width = 0, height = 0, bits = 8;
  Chroma chroma = Chroma::k420;
  AvifColour colour;
  const uint8_t* data[3] = {};
  ptrdiff_t strides[3] = {};
};

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

int Halved(int size, bool halved) { return halved ? (size + 1) / 2 : size; }

bool HalvesColumns(int plane, Chroma chroma) { return plane > 0 && chroma != Chroma::k444; }
bool HalvesRows(int plane, Chroma chroma) { return plane > 0 && chroma == Chroma::k420; }

// MIAF (ISO/IEC 23000-22), 7.3.11.4.2, which libavif enforces. `is_alpha`: chroma does not count there.
absl::Status CheckGrid(const AvifPlanes& grid, const Planes& tile, bool is_alpha) {
  const auto width = static_cast<uint32_t>(tile.width), height = static_cast<uint32_t>(tile.height);
  if (uint64_t{width} * grid.columns < grid.width || uint64_t{height} * grid.rows < grid.height ||
      uint64_t{width} * (grid.columns - 1) >= grid.width || uint64_t{height} * (grid.rows - 1) >= grid.height) {
    return Invalid("the tiles of the grid do not cover the picture");
  }
  const bool odd_columns = HalvesColumns(1, tile.chroma) && (width % 2 != 0 || grid.width % 2 != 0);
  const bool odd_rows = HalvesRows(1, tile.chroma) && (height % 2 != 0 || grid.height % 2 != 0);
  if (tile.width < kMinGridTile || tile.height < kMinGridTile || (!is_alpha && tile.chroma != Chroma::k400 && (odd_columns || odd_rows))) {
    return Invalid("the tiles of the grid are too small or odd");
  }
  return absl::OkStatus();
}

// Lays planes of the whole grid out in `memory`, which grows.
Planes LayOutGrid(const AvifPlanes& grid, const Planes& tile, std::vector<uint8_t>* memory) {
  Planes whole = tile;
  whole.width = static_cast<int>(grid.width);
  whole.height = static_cast<int>(grid.height);
  size_t sizes[3] = {}, total = 0;
  for (int plane = 0; plane < 3 && tile.data[plane] != nullptr; ++plane) {
    whole.strides[plane] = ptrdiff_t{Halved(whole.width, HalvesColumns(plane, tile.chroma))} * (tile.bits > 8 ? 2 : 1);
    sizes[plane] = static_cast<size_t>(whole.strides[plane]) * static_cast<size_t>(Halved(whole.height, HalvesRows(plane, tile.chroma)));
    total += sizes[plane];
  }
  if (memory->size() < total) memory->resize(total);
  const uint8_t* at = memory->data();
  for (int plane = 0; plane < 3 && tile.data[plane] != nullptr; ++plane) {
    whole.data[plane] = at;
    at += sizes[plane];
  }
  return whole;
}

void CopyTile(const Planes& tile, int column, int row, const Planes& whole, uint8_t* memory) {
  const int sample_bytes = tile.bits > 8 ? 2 : 1;
  for (int plane = 0; plane < 3 && tile.data[plane] != nullptr; ++plane) {
    const bool columns = HalvesColumns(plane, tile.chroma), rows = HalvesRows(plane, tile.chroma);
    const int left = Halved(tile.width, columns) * column, top = Halved(tile.height, rows) * row;
    const int width = std::min(Halved(tile.width, columns), Halved(whole.width, columns) - left);
    const int height = std::min(Halved(tile.height, rows), Halved(whole.height, rows) - top);
    uint8_t* const to = memory + (whole.data[plane] - whole.data[0]) + ptrdiff_t{left} * sample_bytes;
    for (int y = 0; y < height; ++y) {
      std::memcpy(to + (top + y) * whole.strides[plane], tile.data[plane] + y * tile.strides[plane],
                  static_cast<size_t>(width) * static_cast<size_t>(sample_bytes));
    }
  }
}

// Colour, or alpha, of the whole picture. The result points into `picture` or into `memory`.
absl::StatusOr<Planes> DecodePlanes(const AvifPlanes& described, bool is_alpha, Picture* picture, std::vector<uint8_t>* memory) {
  if (described.columns == 0) {
    HEADRACE_RETURN_IF_ERROR(DecodeTile(described.tiles[0], picture));
    return PlanesOf(*picture);
  }
  Planes first, whole;
  for (size_t number = 0; number < described.tiles.size(); ++number) {
    Picture decoded;
    HEADRACE_RETURN_IF_ERROR(DecodeTile(described.tiles[number], &decoded));
    Planes tile = PlanesOf(decoded);
    if (is_alpha) std::fill(tile.data + 1, tile.data + 3, nullptr);
    if (number == 0) {
      HEADRACE_RETURN_IF_ERROR(CheckGrid(described, tile, is_alpha));
      first = tile;
      whole = LayOutGrid(described, tile, memory);
    }
    if (tile.width != first.width || tile.height != first.height || tile.bits != first.bits || tile.chroma != first.chroma ||
        tile.colour.primaries != first.colour.primaries || tile.colour.matrix != first.colour.matrix ||
        tile.colour.full_range != first.colour.full_range) {
      return Invalid("the tiles of the grid differ");
    }
    const int column = static_cast<int>(number % described.columns), row = static_cast<int>(number / described.columns);
    CopyTile(tile, column, row, whole, memory->data());
  }
  return whole;
}

}  // namespace

absl::StatusOr<ImageInfo> ReadAvifHeader(absl::Span<const uint8_t> bytes) {
  HEADRACE_ASSIGN_OR_RETURN(const AvifPicture picture, ParseAvif(bytes));
  ImageInfo info;
  info.format = ImageFormat::kAvif;
  info.width = picture.colour.width;
  info.height = picture.colour.height;
  info.components = static_cast<uint8_t>((picture.monochrome ? 1 : 3) + (picture.alpha.tiles.empty() ? 0 : 1));
  info.orientation = picture.orientation;
  return info;
}

absl::Status DecodeAvif(absl::Span<const uint8_t> bytes, const ImageInfo& info, const Rect& region, std::vector<uint8_t>* scratch,
                        RgbImage* out) {
  HEADRACE_ASSIGN_OR_RETURN(const AvifPicture described, ParseAvif(bytes));
  if (described.colour.width != info.width || described.colour.height != info.height) {
    return Invalid("the picture has another size than the index says");
  }
  Picture colour_picture, alpha_picture;
  std::vector<uint8_t> alpha_memory;  // of grids
  HEADRACE_ASSIGN_OR_RETURN(const Planes colour, DecodePlanes(described.colour, false, &colour_picture, scratch));
  // Pillow takes the container's word for the mode and libavif's bytes for its pixels.
  if (described.alpha.tiles.empty() && described.monochrome != (colour.chroma == Chroma::k400)) {
    return Invalid("the container and the AV1 data differ in whether it is grey");
  }
  YuvImage image;
  if (!described.alpha.tiles.empty()) {
    HEADRACE_ASSIGN_OR_RETURN(const Planes alpha, DecodePlanes(described.alpha, true, &alpha_picture, &alpha_memory));
    if (alpha.bits != colour.bits) return Invalid("alpha has another depth than the colours");
    image.alpha = alpha.data[0];
    image.alpha_stride = alpha.strides[0];
    image.alpha_full_range = alpha.colour.full_range;
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
  return YuvToRgb(image, region, out);
}

}  // namespace headrace
