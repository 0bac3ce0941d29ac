#include "core/slot/batch_finish.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace headrace {
namespace {

// Memory that a text's place keeps for the next batch.
constexpr size_t kKeptTextBytes = 256;

// The last `limit` bytes: of a path the end says more.
std::string Tail(const std::string& text, size_t limit) {
  return text.size() <= limit ? text : absl::StrCat("…", text.substr(text.size() - limit));
}

std::string ReportJson(const std::string& dataset, const BadSample& bad, size_t limit) {
  nlohmann::ordered_json report;
  report["message"] = Tail(absl::StrCat(dataset, ": ", bad.Message()), limit);
  report["dataset"] = Tail(dataset, limit);
  report["shard"] = bad.shard;
  report["sample"] = bad.sample;
  report["name"] = Tail(bad.name, limit);
  report["reason"] = Tail(bad.reason, limit);
  return report.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

std::string BadSample::Message() const {
  return absl::StrCat("shard ", shard, ", sample ", sample, name.empty() ? "" : absl::StrCat(" (", name, ")"), ": ",
                      reason);
}

void BatchTexts::Reset(const BatchLayout& layout) {
  values.resize(layout.fields.size());
  for (size_t i = 0; i < layout.fields.size(); ++i) {
    if (layout.fields[i].dtype != HR_TEXT) continue;
    values[i].resize(static_cast<size_t>(layout.fields[i].shape[0]));
    for (std::string& text : values[i]) {
      text.clear();
      if (text.capacity() > kKeptTextBytes) text.shrink_to_fit();
    }
  }
}

uint32_t CompactBatch(const BatchLayout& layout, const std::vector<uint32_t>& dropped, uint32_t count, const SlotMemory& slot,
                      BatchTexts* texts) {
  uint32_t to = 0;
  size_t next_dropped = 0;
  for (uint32_t from = 0; from < count; ++from) {
    if (next_dropped < dropped.size() && dropped[next_dropped] == from) {
      ++next_dropped;
      continue;
    }
    if (from != to) {
      for (size_t i = 0; i < layout.fields.size(); ++i) {
        const hr_field_layout& field = layout.fields[i];
        if (field.dtype == HR_TEXT) {
          texts->values[i][to].swap(texts->values[i][from]);
          continue;
        }
        const uint64_t bytes = SampleBytes(field);
        if (static_cast<int>(i) == layout.device_field) {
          slot.device->Move(slot.device_slot, field.offset + to * bytes, field.offset + from * bytes, bytes);
          continue;
        }
        std::memcpy(slot.host + field.offset + to * bytes, slot.host + field.offset + from * bytes, bytes);
      }
    }
    ++to;
  }
  return to;
}

void WriteTexts(const BatchLayout& layout, const BatchTexts& texts, uint32_t count, uint8_t* slot) {
  for (size_t i = 0; i < layout.fields.size(); ++i) {
    const hr_field_layout& field = layout.fields[i];
    if (field.dtype != HR_TEXT) continue;
    const auto places = static_cast<uint32_t>(field.shape[0]);
    uint8_t* const ends = slot + field.offset;
    uint8_t* const bytes = ends + uint64_t{4} * places;
    uint32_t end = 0;
    for (uint32_t place = 0; place < places; ++place) {
      if (place < count) {
        const std::string& text = texts.values[i][place];
        std::memcpy(bytes + end, text.data(), text.size());
        end += static_cast<uint32_t>(text.size());
      }
      std::memcpy(ends + uint64_t{4} * place, &end, sizeof(end));
    }
  }
}

void WriteBadBatchReport(const BatchLayout& layout, const std::string& dataset, const BadSample& bad, uint8_t* slot) {
  // A byte takes up to six in JSON, and there are five texts; the shortest limit always fits.
  std::string json;
  for (size_t limit : {3000, 1000, 500, 250, 120}) {
    json = ReportJson(dataset, bad, limit);
    if (json.size() < HR_ERROR_BYTES) break;
  }
  std::memcpy(slot + layout.error_offset, json.c_str(), json.size() + 1);
}

}  // namespace headrace
