// One session of the fake daemon: its ring and what fills it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/protocol.h"
#include "tests/support/fake_daemon.h"

namespace headrace::fake {

class FakeSession {
 public:
  // `open_json`: the body of OPEN.
  FakeSession(const FakeDaemonOptions& options, uint64_t id, const std::string& open_json);
  ~FakeSession();
  FakeSession(const FakeSession&) = delete;
  FakeSession& operator=(const FakeSession&) = delete;

  hr_open_answer Answer() const;
  int memfd() const { return memfd_; }
  uint64_t id() const { return id_; }

  // Fills the next free slot, if there is one. *wake: the client waits for it.
  bool Fill(bool* wake);
  uint32_t Seek(uint64_t epoch, uint64_t position);
  void Stop(const std::string& reason);

 private:
  bool SlotFree(uint32_t slot) const;
  void WriteBatch(uint32_t slot, uint64_t first, uint32_t count);

  const FakeDaemonOptions& options_;
  const uint64_t id_;
  uint32_t batch_size_ = 1, num_slots_ = 4, rank_ = 0, world_size_ = 1;
  uint64_t epoch_ = 0, position_ = 0;
  uint32_t next_ticket_, next_slot_ = 0;
  std::vector<hr_field_layout> fields_;
  uint64_t slot_bytes_ = 0, device_slot_bytes_ = 0;
  std::vector<uint32_t> last_ticket_;
  int memfd_ = -1;
  uint8_t* base_ = nullptr;
  hr_control* control_ = nullptr;
};

}  // namespace headrace::fake
