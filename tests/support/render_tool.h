// The stages of an engine as commands, for conformance tests in Python: one JSON object a line
// on standard input, one a line as the answer on standard output. Pixels go to the file that the
// command names.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/augment/draw.h"
#include "core/augment/recipe.h"
#include "core/base/status.h"
#include "core/decode/probe.h"

namespace headrace::render_tool {

// Answers a request with further keys, or an error. {"cmd": "decode", …} → {"ok": true, …} | {"ok":
// false, "error": …}.
using Command = absl::StatusOr<nlohmann::json> (*)(const nlohmann::json& request);
using CommandTable = std::map<std::string, Command>;

// probe: {"file"} → format, width, height, orientation, components, sampling, progressive.
// decode: {"file", "out"[, "region": [top, left, height, width]][, "oriented": true]} → height,
// width, warning;
//   writes RGB bytes. The region is in stored coordinates, or with `oriented` in those of the
//   oriented picture.
void AddDecodeCommands(CommandTable* table);

// output_size: {"recipe"} → height, width.
// draw: {"recipe", "seed", "epoch", "position", "width", "height" (of the oriented image)} → steps,
// draw_error, and crop,
//   flip, vflip where drawn.
// render: {"file", "recipe", "seed", "epoch", "position", "out"} → the same and height, width,
// warning, engine; writes the sample.
// resize: {"file" (raw RGB), "in": [height, width], "size": [height, width], "interpolation", "out"
//   [, "window": [top, left, height, width]][, "mirrored"]} → source (what the window needs),
//   target; writes RGB bytes.
void AddRenderCommands(CommandTable* table);

// Renders one sample of a file as SampleRenderer does, with the engine that the executable is linked for:
// render_on_cpu.cc, or those of tests/gpu. Who made it: "cpu" or "gpu".
absl::StatusOr<const char*> RenderSample(const std::vector<uint8_t>& file, const ImageInfo& info, const Recipe& recipe,
                                         const Draw& draw, std::vector<uint8_t>* out, std::string* warning);

// For commands: the whole file named by request["file"].
absl::StatusOr<std::vector<uint8_t>> ReadInput(const nlohmann::json& request);
// Writes `size` bytes to the file named by request["out"], replacing it.
absl::Status WriteOutput(const nlohmann::json& request, const void* data, size_t size);

}  // namespace headrace::render_tool
