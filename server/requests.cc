// The questions about datasets: DESCRIBE, SAMPLE, AUDIT.
#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/batch/audit.h"
#include "server/request_json.h"
#include "server/service.h"
#include "server/session_spec_json.h"

namespace headrace {
namespace {

const char* KindName(FieldKind kind) {
  switch (kind) {
    case FieldKind::kImage: return "image";
    case FieldKind::kInt64: return "int64";
    case FieldKind::kFloat64: return "float64";
    case FieldKind::kText: return "text";
  }
  return "unknown";
}

absl::StatusOr<UniqueFd> SealedCopy(absl::Span<const uint8_t> bytes) {
  UniqueFd fd(memfd_create("headrace-sample", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus(errno, "memfd_create");
  HEADRACE_RETURN_IF_ERROR(WriteAll(fd.get(), bytes.data(), bytes.size(), "memfd"));
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0) {
    return ErrnoStatus(errno, "sealing a memfd");
  }
  return fd;
}

}  // namespace

absl::StatusOr<std::string> Service::Describe(const std::string& body) {
  HEADRACE_ASSIGN_OR_RETURN(const nlohmann::json request, ParseRequest(body, {"dataset"}));
  HEADRACE_ASSIGN_OR_RETURN(const std::string path, TextOf(request, "dataset"));
  HEADRACE_ASSIGN_OR_RETURN(const auto opened, datasets_.Get(path));
  const Dataset& dataset = *opened;
  nlohmann::json fields = nlohmann::json::array();
  for (const Field& field : dataset.fields()) {
    fields.push_back({{"name", field.name}, {"kind", KindName(field.kind)}, {"max_bytes", field.max_bytes}});
  }
  return Dump({{"path", dataset.dir()},
               {"hash", dataset.hash()},
               {"size", dataset.size()},
               {"fields", fields},
               {"classes", dataset.classes()},
               {"shards", dataset.num_shards()},
               {"order_version", kOrderVersion},
               {"pixel_version", kPixelVersion}});
}

absl::StatusOr<AnswerWithFd> Service::Sample(const std::string& body) {
  HEADRACE_ASSIGN_OR_RETURN(const nlohmann::json request, ParseRequest(body, {"dataset", "sample"}));
  HEADRACE_ASSIGN_OR_RETURN(const std::string path, TextOf(request, "dataset"));
  HEADRACE_ASSIGN_OR_RETURN(const uint64_t sample, NumberOf(request, "sample"));
  HEADRACE_ASSIGN_OR_RETURN(const auto opened, datasets_.Get(path));
  const Dataset& dataset = *opened;
  if (sample >= dataset.size()) {
    return absl::OutOfRangeError(absl::StrCat("sample ", sample, ": ", path, " has ", dataset.size()));
  }
  SampleRow row;
  HEADRACE_RETURN_IF_ERROR(dataset.ReadRow(sample, &row));
  SampleReader reader;
  AnswerWithFd answer;
  nlohmann::json values = nlohmann::json::object();
  uint64_t image_bytes = 0;
  for (size_t i = 0; i < dataset.fields().size(); ++i) {
    const Field& field = dataset.fields()[i];
    if (field.kind == FieldKind::kInt64) {
      values[field.name] = row.values[i].i64;
      continue;
    }
    if (field.kind == FieldKind::kFloat64) {
      values[field.name] = row.values[i].f64;
      continue;
    }
    HEADRACE_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> bytes,
                              reader.Read(dataset, row, static_cast<int>(i), Verify::kEvery, nullptr));
    if (field.kind == FieldKind::kText) {
      values[field.name] = std::string(bytes.begin(), bytes.end());
    } else {
      image_bytes = bytes.size();
      HEADRACE_ASSIGN_OR_RETURN(answer.fd, SealedCopy(bytes));
    }
  }
  answer.json = Dump({{"values", values}, {"image_bytes", image_bytes}});
  return answer;
}

absl::StatusOr<std::string> Service::Audit(const std::string& body) {
  HEADRACE_ASSIGN_OR_RETURN(const nlohmann::json request, ParseRequest(body, {"spec", "epoch", "position", "step"}));
  HEADRACE_ASSIGN_OR_RETURN(const uint64_t epoch, NumberOf(request, "epoch", 0));
  HEADRACE_ASSIGN_OR_RETURN(const uint64_t position, NumberOf(request, "position", 0));
  HEADRACE_ASSIGN_OR_RETURN(const uint64_t step, NumberOf(request, "step"));
  const auto open = [this](const std::string& path) { return datasets_.Get(path); };
  HEADRACE_ASSIGN_OR_RETURN(const SessionSpec spec,
                            ParseSessionSpec(request.contains("spec") ? Dump(request["spec"]) : "", open));
  return AuditStep(spec, Cursor{epoch, position}, step);
}

}  // namespace headrace
