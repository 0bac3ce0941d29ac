#include "tests/pipeline/fake_client.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/augment/draw.h"
#include "core/augment/render.h"
#include "core/batch/order.h"

namespace headrace::testing {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

void Require(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "fake client: %s\n", what.c_str());
  std::abort();
}

// What one sample's place of one field must hold, made without the filler's code.
std::string ExpectedValue(const SessionSpec& spec, const hr_field_layout& field, uint64_t sample, uint64_t epoch,
                          uint64_t position) {
  const Dataset& dataset = *spec.dataset;
  SampleRow row;
  Require(dataset.ReadRow(sample, &row).ok(), "ReadRow");
  const auto number = static_cast<int64_t>(sample);
  if (std::string(field.name) == "index") return std::string(reinterpret_cast<const char*>(&number), 8);
  const auto index = static_cast<size_t>(dataset.FindField(field.name));
  const SampleRow::Value& value = row.values[index];
  switch (dataset.fields()[index].kind) {
    case FieldKind::kInt64:
      return std::string(reinterpret_cast<const char*>(&value.i64), 8);
    case FieldKind::kFloat64:
      return std::string(reinterpret_cast<const char*>(&value.f64), 8);
    default:
      break;
  }
  SampleReader reader;
  const auto bytes = reader.Read(dataset, row, static_cast<int>(index), Verify::kEvery, nullptr);
  Require(bytes.ok(), std::string(bytes.status().message()));
  if (field.dtype == HR_TEXT) return std::string(bytes->begin(), bytes->end());
  Draw draw;
  DrawSample(spec.recipe, spec.seed, epoch, position, static_cast<int>(row.image.oriented_width()),
             static_cast<int>(row.image.oriented_height()), &draw);
  std::string pixels(SampleBytes(field), '\0');
  std::string warning;
  SampleRenderer renderer;
  const absl::Status status = renderer.Render(*bytes, row.image, spec.recipe, draw, pixels.data(), &warning);
  Require(status.ok(), std::string(status.message()));
  return pixels;
}

std::string StoredValue(const hr_field_layout& field, const uint8_t* values, uint32_t place) {
  const auto* base = reinterpret_cast<const char*>(values);
  if (field.dtype != HR_TEXT) return std::string(base + place * SampleBytes(field), SampleBytes(field));
  const auto* ends = reinterpret_cast<const uint32_t*>(base);
  const uint32_t begin = place == 0 ? 0 : ends[place - 1];
  return std::string(base + 4 * field.shape[0] + begin, ends[place] - begin);
}

uint8_t* Map(int fd, uint64_t bytes) {
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  Require(base != MAP_FAILED, "mmap");
  return static_cast<uint8_t*>(base);
}

}  // namespace

FakeClient::FakeClient(Pipeline* pipeline, const SessionSpec& spec, const Cursor& cursor)
    : spec_(spec), bell_(std::make_shared<Bell>()) {
  auto session = pipeline->Open(spec, cursor, [bell = bell_] {
    {
      std::lock_guard lock(bell->mutex);
      bell->rung = true;
      ++bell->count;
    }
    bell->rung_changed.notify_one();
  });
  Require(session.ok(), std::string(session.status().message()));
  session_ = *std::move(session);
  layout_ = session_->layout();
  bytes_ = session_->ring().total_bytes();
  num_slots_ = session_->ring().num_slots();
  wanted_ = session_->first_ticket();
  leased_.resize(static_cast<size_t>(num_slots_));
  seen_.resize(static_cast<size_t>(num_slots_));
  base_ = Map(session_->ring().fd(), bytes_);
  const DeviceRing* device = session_->ring().device();
  Require((device != nullptr) == (layout_.device_field >= 0), "GPU memory without a field, or the other way round");
  if (device == nullptr) return;
  device_bytes_ = device->total_bytes();
  device_base_ = Map(device->fd(), device_bytes_);
}

FakeClient::~FakeClient() {
  session_->Close(RingMemory::kKeep);
  ::munmap(base_, bytes_);
  if (device_base_ != nullptr) ::munmap(device_base_, device_bytes_);
}

const uint8_t* FakeClient::Values(const hr_field_layout& field, const Lease& lease) const {
  const bool on_device = &field - layout_.fields.data() == layout_.device_field;
  return (on_device ? lease.device_bytes : lease.bytes) + field.offset;
}

std::optional<Lease> FakeClient::Poll() {
  for (int slot = 0; slot < num_slots_; ++slot) {
    auto& line = control()->slots[slot];
    if (line.ready.load() != wanted_) continue;
    leased_[static_cast<size_t>(slot)] = seen_[static_cast<size_t>(slot)] = wanted_;
    Lease lease{slot, wanted_, line.length, line.status, line.bad_samples, {line.epoch, line.position},
                {line.next_epoch, line.next_position}, base_ + HR_CONTROL_BYTES + static_cast<uint64_t>(slot) * layout_.slot_bytes};
    if (device_base_ != nullptr) lease.device_bytes = device_base_ + static_cast<uint64_t>(slot) * layout_.device_slot_bytes;
    ++wanted_;
    return lease;
  }
  return std::nullopt;
}

std::optional<Lease> FakeClient::Next() {
  if (auto lease = Poll()) return lease;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    control()->client.waiting.store(1);
    std::optional<Lease> lease = Poll();
    if (!lease) {
      std::unique_lock lock(bell_->mutex);
      if (!bell_->rung_changed.wait_until(lock, deadline, [&] { return bell_->rung; })) return std::nullopt;
      bell_->rung = false;
    }
    control()->client.waiting.store(0);
    if (lease) return lease;
    if ((lease = Poll())) return lease;
  }
}

void FakeClient::RingDaemon() {
  if (control()->daemon.waiting.load() != 0) session_->OnDoorbell();
}

void FakeClient::Release(const Lease& lease) {
  leased_[static_cast<size_t>(lease.slot)] = 0;
  control()->slots[lease.slot].released.store(lease.ticket);
  RingDaemon();
}

void FakeClient::ReleaseOlder(uint32_t first) {
  for (int slot = 0; slot < num_slots_; ++slot) {
    auto& line = control()->slots[slot];
    const uint32_t ready = line.ready.load();
    if (ready != 0 && ready < first && leased_[static_cast<size_t>(slot)] == 0) line.released.store(ready);
  }
  RingDaemon();
}

void FakeClient::Seek(const Cursor& cursor) {
  wanted_ = session_->Seek(cursor);
  ReleaseOlder(wanted_);
}

uint64_t FakeClient::wakes() const {
  std::lock_guard lock(bell_->mutex);
  return bell_->count;
}

std::string FakeClient::Differs(const Lease& lease) const {
  if (Normalized(spec_, lease.start) != lease.start) return "starts where no step starts";
  const StepRange range = StepAt(spec_, lease.start);
  if (range.next != lease.next) return "wrong next cursor";
  if (range.count != lease.length) return absl::StrCat(lease.length, " samples instead of ", range.count);
  const EpochOrder order(spec_.dataset->size(), spec_.seed, lease.start.epoch, spec_.shuffle);
  for (uint32_t place = 0; place < lease.length; ++place) {
    const uint64_t position = range.first_position + place;
    for (const hr_field_layout& field : layout_.fields) {
      if (StoredValue(field, Values(field, lease), place) !=
          ExpectedValue(spec_, field, order.SampleAt(position), lease.start.epoch, position)) {
        return absl::StrCat("field ", std::string(field.name), " at place ", place, " of position ", position);
      }
    }
  }
  return "";
}

uint64_t FakeClient::Digest(const Lease& lease) const {
  std::string all = absl::StrCat(lease.length, " ", lease.status, " ", lease.bad_samples, " ", lease.start.epoch, " ",
                                 lease.start.position);
  for (uint32_t place = 0; place < lease.length; ++place) {
    for (const hr_field_layout& field : layout_.fields) all += StoredValue(field, Values(field, lease), place);
  }
  if (lease.status != 0) all += reinterpret_cast<const char*>(lease.bytes + layout_.error_offset);
  return std::hash<std::string>()(all);
}

SessionSpec TinySpec(std::shared_ptr<const Dataset> dataset, int batch_size) {
  SessionSpec spec;
  spec.fields.clear();
  for (const Field& field : dataset->fields()) spec.fields.push_back(field.name);
  spec.dataset = std::move(dataset);
  spec.batch_size = batch_size;
  spec.shuffle = Shuffle::kGlobal;
  spec.seed = 3;
  RandomResizedCrop crop;
  crop.height = crop.width = 16;
  spec.recipe.transforms = {crop, RandomHorizontalFlip{}};
  spec.recipe.normalize = Normalize{};
  return spec;
}

std::vector<int64_t> Indices(const FakeClient& client, const Lease& lease) {
  const hr_field_layout& field = client.session()->layout().fields.back();
  std::vector<int64_t> indices(lease.length);
  std::memcpy(indices.data(), lease.bytes + field.offset, 8 * indices.size());
  return indices;
}

}  // namespace headrace::testing
