#include "core/slot/sample_filler.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"

namespace headrace {
namespace {

template <typename T>
void Store(const hr_field_layout& field, const SampleFiller::Target& target, T value) {
  std::memcpy(target.slot.host + field.offset + target.place * sizeof(T), &value, sizeof(T));
}

// The stages before name shard and sample themselves; reports have them in keys of their own.
std::string ReasonOf(const Dataset& dataset, uint64_t sample, const absl::Status& status) {
  std::string reason(status.message());
  const std::string prefix = absl::StrCat("shard ", dataset.Locate(sample).first, ", sample ", sample);
  if (reason.compare(0, prefix.size(), prefix) == 0) {
    reason.erase(0, prefix.size());
    reason.erase(0, reason.find_first_not_of(",: "));
  }
  return reason;
}

}  // namespace

absl::Status SampleFiller::FillField(const SessionSpec& spec, const BatchLayout& layout, size_t i,
                                     const Target& target, Verify verify, VerifiedSamples* verified) {
  const hr_field_layout& field = layout.fields[i];
  const int number = layout.dataset_fields[i];
  if (number < 0) {
    Store<int64_t>(field, target, static_cast<int64_t>(row_.sample));
    return absl::OkStatus();
  }
  const SampleRow::Value& value = row_.values[static_cast<size_t>(number)];
  switch (field.dtype) {
    case HR_INT64:
      Store<int64_t>(field, target, value.i64);
      return absl::OkStatus();
    case HR_FLOAT64:
      Store<double>(field, target, value.f64);
      return absl::OkStatus();
    default:
      break;
  }
  if (field.dtype == HR_TEXT) {
    HEADRACE_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> bytes,
                              reader_.Read(*spec.dataset, row_, number, verify, verified));
    // The room in the slot is batch_size times the longest value that dataset.json declares.
    const uint64_t longest = field.bytes / static_cast<uint64_t>(field.shape[0]) - 4;
    if (bytes.size() > longest) {
      return absl::DataLossError(absl::StrCat("field ", std::string(field.name), " has ", bytes.size(),
                                              " bytes; the dataset declares at most ", longest));
    }
    target.texts->values[i][target.place].assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return absl::OkStatus();
  }
  return FillImage(spec, layout, i, target, verify, verified);
}

void SampleFiller::DrawFor(const SessionSpec& spec, const Target& target) {
  DrawSample(spec.recipe, spec.seed, target.epoch, target.position, static_cast<int>(row_.image.oriented_width()),
             static_cast<int>(row_.image.oriented_height()), &draw_);
}

bool SampleFiller::ReadEntries(const SessionSpec& spec, const HeldIndex* held) {
  // Damaged entry data is no reason to lose a sample: its library decodes it as well.
  return spec.dataset->ReadEntries(row_, &entries_, held).value_or(false);
}

absl::Status SampleFiller::FillImage(const SessionSpec& spec, const BatchLayout& layout, size_t i,
                                     const Target& target, Verify verify, VerifiedSamples* verified) {
  const hr_field_layout& field = layout.fields[i];
  const int number = layout.dataset_fields[i];
  DrawFor(spec, target);
  // Unchecked bytes may be decoded to something: what is known of checked ones says nothing about them.
  KnownBad* const known_bad = verify == Verify::kNever ? nullptr : spec.known_bad.get();
  uint32_t stored_rows = 0;
  bool is_known = false, is_read = false;
  const auto read = [&](uint64_t begin, uint64_t end) -> absl::StatusOr<absl::Span<const uint8_t>> {
    if (known_bad != nullptr) {
      if (std::optional<std::string> reason = known_bad->Find(row_.sample, stored_rows)) {
        is_known = true;
        return absl::DataLossError(*std::move(reason));
      }
    }
    auto bytes = reader_.ReadRange(*spec.dataset, row_, number, begin, end, verify, verified);
    is_read = bytes.ok();
    return bytes;
  };
  EncodedImage image = {&row_.image, row_.values[static_cast<size_t>(number)].location.length, read};
  image.stored_rows = &stored_rows;
  if (ReadEntries(spec)) {
    image.entries = &entries_.view();
    image.frame = &entries_.frame();
  }
  const uint64_t bytes = SampleBytes(field), offset = field.offset + target.place * bytes;
  const bool is_on_device = target.slot.device != nullptr;
  if (is_on_device) staging_.resize(bytes);
  absl::Status status =
      renderer_.Render(image, spec.recipe, draw_, is_on_device ? staging_.data() : target.slot.host + offset, &warning_);
  if (!status.ok() && known_bad != nullptr && !is_known) {
    if (is_read) {
      known_bad->Add(row_.sample, stored_rows, ReasonOf(*spec.dataset, row_.sample, status));
    } else if (absl::IsDataLoss(status) && reader_.Read(*spec.dataset, row_, number, Verify::kNever, nullptr).ok()) {
      known_bad->Add(row_.sample, 0, ReasonOf(*spec.dataset, row_.sample, status));  // its hash: no error of the disk's
    }
  }
  if (status.ok() && is_on_device) target.slot.device->Write(target.slot.device_slot, offset, staging_);
  return status;
}

absl::Status SampleFiller::AddToBurst(const SessionSpec& spec, const BatchLayout& layout, uint64_t sample, const Target& target,
                                      Verify verify, VerifiedSamples* verified, const ShardMap* map, GpuLane* lane) {
  const HeldIndex* const held = map != nullptr ? &map->index() : nullptr;
  HEADRACE_RETURN_IF_ERROR(spec.dataset->ReadRow(sample, &row_, held));
  if (spec.known_bad != nullptr && spec.known_bad->Find(sample, UINT32_MAX)) return absl::UnimplementedError("perhaps bad");
  const auto image = static_cast<size_t>(layout.device_field);
  for (size_t i = 0; i < layout.fields.size(); ++i) {
    if (i != image) HEADRACE_RETURN_IF_ERROR(FillField(spec, layout, i, target, verify, verified));
  }
  if (!ReadEntries(spec, held)) return absl::UnimplementedError("no entry points");
  DrawFor(spec, target);
  HEADRACE_ASSIGN_OR_RETURN(const ByteRange planned,
                            lane->Plan({&row_.image, &entries_.view(), &entries_.frame(), &draw_, target.place, entries_.tables_number()}));
  return AddBytes(spec, layout.dataset_fields[image], planned, verify, verified, map, lane);
}

void SampleFiller::Prefetch(const Dataset& dataset, absl::Span<const uint64_t> samples, size_t place, const ShardMap* map) {
  constexpr size_t kSoon = 3, kLater = 8;  // samples ahead: their rows come before the entry data that these tell of
  if (map == nullptr) return;
  if (place + kLater < samples.size()) dataset.PrefetchRow(samples[place + kLater], map->index());
  if (place + kSoon < samples.size()) dataset.PrefetchEntries(samples[place + kSoon], map->index());
}

absl::Status SampleFiller::AddBytes(const SessionSpec& spec, int number, const ByteRange& planned, Verify verify,
                                    VerifiedSamples* verified, const ShardMap* map, GpuLane* lane) {
  const Dataset& dataset = *spec.dataset;
  const ValueLocation& location = row_.values[static_cast<size_t>(number)].location;
  const ByteRange range = {planned.begin, std::min(planned.end, location.length)};
  const uint64_t size = range.end - range.begin;
  if (map != nullptr && IsTrusted(dataset, row_, number, verify, verified)) {
    if (const uint8_t* bytes = map->Find(location.shard, location.offset + range.begin, size)) {
      return lane->AddMapped(bytes, size);
    }
  }
  HEADRACE_ASSIGN_OR_RETURN(uint8_t* const staged, lane->Stage(size));
  HEADRACE_RETURN_IF_ERROR(reader_.ReadRangeTo(dataset, row_, number, range.begin, range.end, verify, verified, staged));
  return lane->AddStaged(size);
}

absl::Status SampleFiller::Fill(const SessionSpec& spec, const BatchLayout& layout, uint64_t sample,
                                const Target& target, Verify verify, VerifiedSamples* verified) {
  HEADRACE_RETURN_IF_ERROR(spec.dataset->ReadRow(sample, &row_));
  for (size_t i = 0; i < layout.fields.size(); ++i) {
    HEADRACE_RETURN_IF_ERROR(FillField(spec, layout, i, target, verify, verified));
  }
  return absl::OkStatus();
}

BadSample MakeBadSample(const Dataset& dataset, uint64_t sample, uint32_t place, const absl::Status& status) {
  BadSample bad;
  bad.place = place;
  bad.sample = sample;
  bad.shard = dataset.Locate(sample).first;
  bad.reason = ReasonOf(dataset, sample, status);
  SampleRow row;
  if (dataset.ReadRow(sample, &row).ok()) {
    if (absl::StatusOr<std::string> name = ReadName(dataset, row); name.ok()) bad.name = *std::move(name);
  }
  return bad;
}

}  // namespace headrace
