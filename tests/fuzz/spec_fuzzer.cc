// The JSON of AUDIT and OPEN: the session's spec and its recipe, up to a sample that is drawn and rendered.
#include <random>

#include "core/augment/render.h"
#include "core/augment/step_plan.h"
#include "core/batch/audit.h"
#include "core/batch/order.h"
#include "core/decode/probe.h"
#include "core/slot/batch_layout.h"
#include "server/request_json.h"
#include "server/session_spec_json.h"
#include "tests/fuzz/input.h"
#include "tests/support/jpeg_maker.h"
#include "tests/support/tiny_dataset.h"

namespace headrace {
namespace {

// A step's memory and time grow with its pixels.
constexpr int64_t kMaxPixels = 1 << 16;

struct Request {
  SessionSpec spec;
  Cursor cursor;
  uint64_t step = 0;
};

absl::StatusOr<Request> Parse(const std::string& body, const OpenDataset& open) {
  Request parsed;
  HEADRACE_ASSIGN_OR_RETURN(const nlohmann::json request,
                            ParseRequest(body, {"spec", "dataset_hash", "epoch", "position", "step"}));
  HEADRACE_ASSIGN_OR_RETURN(parsed.cursor.epoch, NumberOf(request, "epoch", 0));
  HEADRACE_ASSIGN_OR_RETURN(parsed.cursor.position, NumberOf(request, "position", 0));
  HEADRACE_ASSIGN_OR_RETURN(parsed.step, NumberOf(request, "step", 0));
  HEADRACE_ASSIGN_OR_RETURN(parsed.spec, ParseSessionSpec(request.contains("spec") ? Dump(request["spec"]) : "", open));
  return parsed;
}

void Render(const SessionSpec& spec, const Cursor& cursor) {
  static const std::vector<uint8_t> file = [] {
    testing::JpegOptions options;
    options.width = 47;
    options.height = 31;
    options.sampling = testing::AllSamplings()[2];
    std::mt19937 random(1);
    return testing::MakeJpeg(options, &random);
  }();
  const ImageInfo info = *ProbeImage(file);
  const auto size = spec.recipe.OutputSize();
  if (!size.ok() || int64_t{(*size)[0]} * (*size)[1] > kMaxPixels) return;
  Draw draw;
  std::vector<Stage> stages;
  Rect source;
  const int width = static_cast<int>(info.width), height = static_cast<int>(info.height);
  DrawSample(spec.recipe, spec.seed, cursor.epoch, cursor.position, width, height, &draw);
  if (!draw.error.empty() || !PlanSteps(draw.steps, height, width, &stages, &source).ok()) return;
  for (const Stage& stage : stages) {
    if (int64_t{stage.window.height} * stage.window.width > kMaxPixels) return;
  }
  std::vector<uint8_t> out(static_cast<size_t>(3 * (*size)[0] * (*size)[1] * DTypeBytes(spec.recipe.dtype)));
  static SampleRenderer renderer;
  std::string warning;
  (void)renderer.Render(file, info, spec.recipe, draw, out.data(), &warning);
}

}  // namespace
}  // namespace headrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace;  // NOLINT
  static const headrace::testing::TinyDataset tiny({.samples = 40, .columns = true});
  static const std::shared_ptr<const Dataset> dataset = tiny.Open();
  const absl::StatusOr<Request> request = Parse(std::string(data, data + size), [](const std::string&) { return dataset; });
  if (!request.ok()) return 0;
  const SessionSpec& spec = request->spec;
  const StepRange range = StepAt(spec, Normalized(spec, request->cursor));
  fuzz::Check(range.count <= static_cast<uint32_t>(spec.batch_size));
  (void)AuditStep(spec, request->cursor, request->step);
  if (MakeBatchLayout(spec).ok()) Render(spec, request->cursor);
  return 0;
}
