// A client in the tests' own process: maps a session's ring (and a fake GPU's memory) a second time and follows docs/protocol.md, with a condition
// variable in place of the socket. It looks at the ring only after a doorbell, so a bell that is not rung is a failed test.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/pipeline/pipeline.h"

namespace headrace::testing {

struct Lease {
  int slot = -1;
  uint32_t ticket = 0, length = 0, status = 0, bad_samples = 0;
  Cursor start, next;
  const uint8_t* bytes = nullptr;
  const uint8_t* device_bytes = nullptr;  // with the GPU engine: its slot in GPU memory
};

class FakeClient {
 public:
  // Opens a session; a test fails at once if that fails.
  FakeClient(Pipeline* pipeline, const SessionSpec& spec, const Cursor& cursor = {});
  ~FakeClient();

  // The next batch; waits 60 s at most and gives nothing then.
  std::optional<Lease> Next();
  // Only if it is there already.
  std::optional<Lease> Poll();
  void Release(const Lease& lease);
  void Seek(const Cursor& cursor);
  void Close(RingMemory memory = RingMemory::kKeep) { session_->Close(memory); }

  Session* session() const { return session_.get(); }
  hr_control* control() const { return reinterpret_cast<hr_control*>(base_); }
  uint64_t wakes() const;
  // Whether the batch's bytes are what a single thread makes of spec, cursor and dataset; "" or what differs.
  std::string Differs(const Lease& lease) const;
  // One number for all that a batch holds.
  uint64_t Digest(const Lease& lease) const;

 private:
  struct Bell {
    std::mutex mutex;
    std::condition_variable rung_changed;
    bool rung = false;
    uint64_t count = 0;
  };
  // Where the values of `field` lie.
  const uint8_t* Values(const hr_field_layout& field, const Lease& lease) const;
  void ReleaseOlder(uint32_t first);
  void RingDaemon();

  const SessionSpec spec_;
  const std::shared_ptr<Bell> bell_;
  std::shared_ptr<Session> session_;
  BatchLayout layout_;
  uint8_t *base_ = nullptr, *device_base_ = nullptr;
  uint64_t bytes_ = 0, device_bytes_ = 0;
  int num_slots_ = 0;
  uint32_t wanted_ = 1;
  std::vector<uint32_t> leased_;  // per slot: ticket, or 0
  std::vector<uint32_t> seen_;    // per slot: last ticket handed out
};

// A spec that a TinyDataset fits: RandomResizedCrop 16, flip, normalised float32, `fields` all there are.
SessionSpec TinySpec(std::shared_ptr<const Dataset> dataset, int batch_size);

// The sample numbers of a batch, from its `index`.
std::vector<int64_t> Indices(const FakeClient& client, const Lease& lease);

}  // namespace headrace::testing
