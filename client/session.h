// One subscription: a cursor, a ring while there is a daemon, and the way back when there is none.
// docs/client.md has the state diagram.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "client/control.h"
#include "client/headrace.h"
#include "client/protocol.h"
#include "client/ring.h"
#include "client/shortage.h"
#include "client/status.h"

namespace headrace::client {

struct Cursor {
  uint64_t epoch = 0, position = 0;
};

// Used by one thread at a time; stats() by any.
class Session {
 public:
  // `dataset_hash` may be empty.
  Session(std::shared_ptr<Control> control, std::string spec_json, std::string dataset_hash,
          Cursor cursor);
  ~Session();

  Status Open(const Deadline& deadline);
  // `batch` null: only until a batch is ready. A bad sample is taken then, too.
  Status Next(hr_batch* batch, const Deadline& deadline);
  // Never waits. False: not ready, or Next must see to it, or there is no memory for copies
  // (*status); nothing has moved.
  bool TryNext(uint32_t max_fields, hr_batch* batch, Status* status);
  // See hr_session_lease_all.
  void LeaseAll();
  // The ring of the newest batch; null while there is none.
  Ring* HoldRing();
  Status Seek(Cursor cursor, const Deadline& deadline);

  const hr_open_answer& info() const { return info_; }
  uint64_t process() const { return control_->process(); }
  hr_session_stats stats() const;

 private:
  enum class Taken { kBatch, kNotYet, kBroken };
  // Looks into the ring once. kBatch: *status is OK or BAD_SAMPLE, and the cursor has moved.
  Taken Take(hr_batch* batch, Status* status);
  Status HandOut(const Ring::Line& line, uint32_t slot, uint32_t max_fields, hr_batch* batch);
  void Advance(const Ring::Line& line);
  Status BadSample(const Ring::Line& line, uint32_t slot, hr_batch* batch);
  // OK: look again. UNAVAILABLE: the daemon is gone.
  Status Wait(const Deadline& deadline);

  // LOST and OPEN of the state diagram. Tries until the deadline.
  Status Reopen(const Deadline& deadline);
  Status OpenOnce(const Deadline& deadline);
  Status SendOpen(const Deadline& deadline);
  Status Adopt(const std::string& body, const Descriptor& memfd);
  // Drops connection and ring; `why` is told at the deadline. Empty: by this side's choice, which counts as no reconnection.
  void Lose(const std::string& why);
  Status DeadlinePassed(const Deadline& deadline, const std::string& state) const;

  const std::shared_ptr<Control> control_;
  const std::string spec_json_;
  std::string dataset_hash_;
  Cursor cursor_;
  uint32_t wanted_ = 0, first_wanted_ = 0;  // tickets: the next one, and the first since OPEN or SEEK
  bool opened_before_ = false, lease_all_ = false;
  hr_open_answer info_{};
  // Under engine "auto": whether the CPU engine keeps up, and whether OPEN says that it did not.
  Shortage shortage_;
  int64_t unjudged_ns_ = 0;  // waited since the last batch, perhaps in several calls with short deadlines
  bool starved_ = false;
  // Samples of the batches handed out that count towards max_bad, for the next daemon.
  std::set<uint64_t> counted_bad_;

  std::unique_ptr<Connection>
      connection_;  // with ring_: open; without: OPEN is sent and not answered
  std::unique_ptr<Ring> ring_;
  std::string lost_because_, last_try_;  // told at the deadline
  int broken_in_a_row_ = 0;              // rings that broke the protocol since the last batch

  std::atomic<uint64_t> batches_{0}, samples_{0}, bad_samples_{0}, reconnections_{0}, waited_ns_{0},
      copied_batches_{0};
  std::atomic<uint32_t> slots_{0}, slots_ready_{0}, slots_leased_{0};
};

}  // namespace headrace::client
