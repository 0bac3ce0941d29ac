#include "core/decode/image_decoder.h"
#include "core/decode/probe.h"
#include "tests/support/render_tool.h"

namespace headrace::render_tool {
namespace {

absl::StatusOr<nlohmann::json> Probe(const nlohmann::json& request) {
  HEADRACE_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, ReadInput(request));
  HEADRACE_ASSIGN_OR_RETURN(const ImageInfo info, ProbeImage(bytes));
  return nlohmann::json{
      {"format", FormatName(info.format)},
      {"width", info.width},
      {"height", info.height},
      {"orientation", info.orientation},
      {"components", info.components},
      {"sampling", std::vector<int>(info.sampling, info.sampling + info.components)},
      {"progressive", info.progressive}};
}

absl::StatusOr<nlohmann::json> Decode(const nlohmann::json& request) {
  HEADRACE_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, ReadInput(request));
  HEADRACE_ASSIGN_OR_RETURN(const ImageInfo info, ProbeImage(bytes));
  const bool oriented = request.value("oriented", false);
  Rect region{0, 0, static_cast<int>(info.height), static_cast<int>(info.width)};
  if (request.contains("region")) {
    const auto& edges = request.at("region");
    region = {edges.at(0), edges.at(1), edges.at(2), edges.at(3)};
    if (oriented) region = StoredRegion(region, info);
  }
  // Kept between requests, as a decoding thread does: no file may see anything of the one before.
  static ImageDecoder decoder;
  static RgbImage stored, turned;
  std::string warning;
  HEADRACE_RETURN_IF_ERROR(decoder.Decode(bytes, info, region, &stored, &warning));
  if (oriented) ApplyOrientation(stored, info.orientation, &turned);
  const RgbImage& image = oriented ? turned : stored;
  HEADRACE_RETURN_IF_ERROR(WriteOutput(request, image.pixels.data(),
                                       image.stride() * static_cast<size_t>(image.height)));
  return nlohmann::json{{"height", image.height}, {"width", image.width}, {"warning", warning}};
}

}  // namespace

void AddDecodeCommands(CommandTable* table) {
  (*table)["probe"] = &Probe;
  (*table)["decode"] = &Decode;
}

}  // namespace headrace::render_tool
