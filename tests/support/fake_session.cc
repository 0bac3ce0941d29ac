#include "tests/support/fake_session.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

namespace headrace::fake {
namespace {

constexpr uint64_t kTextBytes = 16;  // the longest name

hr_field_layout Field(const char* name, uint32_t dtype, int64_t batch_size, uint64_t bytes) {
  hr_field_layout field{};
  snprintf(field.name, sizeof field.name, "%s", name);
  field.dtype = dtype;
  field.ndim = 1;
  field.shape[0] = batch_size;
  field.strides[0] = 1;
  field.bytes = bytes;
  return field;
}

}  // namespace

FakeSession::FakeSession(const FakeDaemonOptions& options, uint64_t id,
                         const std::string& open_json)
    : options_(options), id_(id), next_ticket_(options.first_ticket) {
  const auto open = nlohmann::json::parse(open_json);
  const auto& spec = open.at("spec");
  batch_size_ = spec.at("batch_size").get<uint32_t>();
  num_slots_ = spec.value("prefetch_factor", 2u) + 2;
  rank_ = spec.value("rank", 0u);
  world_size_ = spec.value("world_size", 1u);
  epoch_ = open.at("epoch").get<uint64_t>();
  position_ = open.at("position").get<uint64_t>();

  const uint64_t batch = batch_size_;
  hr_field_layout image = Field("image", HR_FLOAT32, batch_size_, batch * kImageElements * 4);
  image.ndim = 4;
  const int64_t shape[] = {batch_size_, kChannels, kSide, kSide};
  const int64_t strides[] = {kImageElements, kSide * kSide, kSide, 1};
  std::copy(shape, shape + 4, image.shape);
  std::copy(strides, strides + 4, image.strides);
  fields_ = {image, Field("label", HR_INT64, batch_size_, batch * 8),
             Field("name", HR_TEXT, batch_size_, batch * (4 + kTextBytes)),
             Field("index", HR_INT64, batch_size_, batch * 8)};
  uint64_t end = 0;
  if (options.on_gpu) device_slot_bytes_ = (fields_[0].bytes + 4095) / 4096 * 4096;
  for (hr_field_layout& field : fields_) {
    if (options.on_gpu && field.ndim == 4) continue;
    field.offset = (end + 63) / 64 * 64;
    end = field.offset + field.bytes;
  }
  slot_bytes_ = (end + HR_ERROR_BYTES + 4095) / 4096 * 4096;
  last_ticket_.assign(num_slots_, 0);

  const uint64_t bytes = HR_CONTROL_BYTES + num_slots_ * slot_bytes_;
  memfd_ = memfd_create("fake-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const bool small = options.hostile == "memfd-small";
  if (ftruncate(memfd_, static_cast<off_t>(small ? HR_CONTROL_BYTES : bytes)) != 0) abort();
  if (options.hostile != "memfd-unsealed")
    fcntl(memfd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  base_ =
      static_cast<uint8_t*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd_, 0));
  if (base_ == MAP_FAILED) abort();
  control_ = reinterpret_cast<hr_control*>(base_);
  control_->fixed.layout_version = options.hostile == "layout-version" ? 99 : HR_LAYOUT_VERSION;
  control_->fixed.num_slots = num_slots_;
}

FakeSession::~FakeSession() {
  munmap(base_, HR_CONTROL_BYTES + num_slots_ * slot_bytes_);
  close(memfd_);
}

hr_open_answer FakeSession::Answer() const {
  hr_open_answer answer{};
  answer.session_id = id_;
  answer.dataset_size = options_.size;
  snprintf(answer.dataset_hash, sizeof answer.dataset_hash, "%s", options_.hash.c_str());
  answer.order_version = options_.order_version;
  answer.pixel_version = options_.pixel_version;
  answer.num_slots = num_slots_;
  answer.first_ticket = options_.first_ticket;
  answer.num_fields = static_cast<uint32_t>(fields_.size());
  answer.batch_size = batch_size_;
  answer.slot_bytes = slot_bytes_;
  answer.memfd_bytes = HR_CONTROL_BYTES + num_slots_ * slot_bytes_;
  answer.error_offset = slot_bytes_ - HR_ERROR_BYTES;
  answer.device_slot_bytes = device_slot_bytes_;
  std::copy(fields_.begin(), fields_.end(), answer.fields);
  return answer;
}

bool FakeSession::SlotFree(uint32_t slot) const {
  return control_->slots[slot].released.load(std::memory_order_seq_cst) == last_ticket_[slot];
}

bool FakeSession::Fill(bool* wake) {
  *wake = false;
  uint32_t slot = next_slot_;
  for (int round = 0; round < 2; ++round) {
    for (uint32_t i = 0; i < num_slots_ && !SlotFree(slot); ++i) slot = (slot + 1) % num_slots_;
    if (SlotFree(slot)) break;
    control_->daemon.waiting.store(1, std::memory_order_seq_cst);  // and look once more
  }
  if (!SlotFree(slot)) return false;
  control_->daemon.waiting.store(0, std::memory_order_seq_cst);

  if (position_ >= options_.size) ++epoch_, position_ = 0;
  const uint64_t step = std::min<uint64_t>(static_cast<uint64_t>(batch_size_) * world_size_,
                                           options_.size - position_);
  const uint64_t begin = position_ + step * rank_ / world_size_,
                 end = position_ + step * (rank_ + 1) / world_size_;
  auto& line = control_->slots[slot];
  const bool bad = options_.bad_at >= 0 && position_ == static_cast<uint64_t>(options_.bad_at);
  line.length = bad ? 0 : static_cast<uint32_t>(end - begin);
  line.status = bad ? 15 : 0;
  line.bad_samples = bad ? 1 : 0;
  line.epoch = epoch_;
  line.position = position_;
  line.next_epoch = epoch_;
  line.next_position = position_ + step;
  if (bad) {
    char* report = reinterpret_cast<char*>(base_ + HR_CONTROL_BYTES + slot * slot_bytes_ +
                                           slot_bytes_ - HR_ERROR_BYTES);
    snprintf(report, HR_ERROR_BYTES, "{\"message\": \"bad\", \"sample\": %llu}",
             static_cast<unsigned long long>(begin));
  } else {
    WriteBatch(slot, begin, line.length);
  }
  if (options_.hostile == "long-batch") line.length = batch_size_ + 1;
  if (options_.hostile == "endless-report" && bad) {
    memset(base_ + HR_CONTROL_BYTES + (slot + 1) * slot_bytes_ - HR_ERROR_BYTES, 'x',
           HR_ERROR_BYTES);
  }
  position_ += step;
  if (options_.hostile == "skip-ticket" && next_ticket_ == 3) ++next_ticket_;
  last_ticket_[slot] = next_ticket_;
  line.ready.store(next_ticket_++, std::memory_order_seq_cst);
  next_slot_ = (slot + 1) % num_slots_;
  *wake = control_->client.waiting.load(std::memory_order_seq_cst) != 0;
  return true;
}

void FakeSession::WriteBatch(uint32_t slot, uint64_t first, uint32_t count) {
  uint8_t* data = base_ + HR_CONTROL_BYTES + slot * slot_bytes_;
  auto* images = reinterpret_cast<float*>(data + fields_[0].offset);
  auto* labels = reinterpret_cast<int64_t*>(data + fields_[1].offset);
  auto* ends = reinterpret_cast<uint32_t*>(data + fields_[2].offset);
  auto* texts = reinterpret_cast<char*>(ends + batch_size_);
  auto* indices = reinterpret_cast<int64_t*>(data + fields_[3].offset);
  uint32_t end = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t sample = first + i;
    if (!options_.on_gpu) std::fill_n(images + i * kImageElements, kImageElements, PixelOf(epoch_, sample));
    labels[i] = static_cast<int64_t>(10 * sample);
    indices[i] = static_cast<int64_t>(sample);
    const std::string name = "s" + std::to_string(sample);
    memcpy(texts + end, name.data(), name.size());
    end += static_cast<uint32_t>(name.size());
    ends[i] = end;
  }
}

uint32_t FakeSession::Seek(uint64_t epoch, uint64_t position) {
  epoch_ = epoch;
  position_ = position;
  return next_ticket_;
}

void FakeSession::Stop(const std::string& reason) {
  snprintf(control_->daemon.reason, sizeof control_->daemon.reason, "%s", reason.c_str());
  control_->daemon.stopping.store(1, std::memory_order_release);
}

}  // namespace headrace::fake
