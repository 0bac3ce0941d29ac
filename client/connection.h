// Frames of docs/protocol.md over one Unix stream socket, with deadlines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "client/process.h"
#include "client/protocol.h"
#include "client/status.h"

namespace headrace::client {

// Waits until `fd` has `events`, the deadline (DEADLINE_EXCEEDED) or a signal handler
// (INTERRUPTED). `also`, when not -1, ends the wait when it is readable.
Status WaitFor(int fd, short events, const Deadline& deadline, int also = -1);
// Sleeps; INTERRUPTED after a signal handler.
Status SleepMs(int64_t ms, const Deadline& deadline);

// One socket. Errors: UNAVAILABLE when the daemon has gone, INTERNAL when it broke the protocol; in
// both cases `closed()` from then on. DEADLINE_EXCEEDED and INTERRUPTED leave the connection
// usable: Receive goes on where it stopped.
class Connection {
 public:
  explicit Connection(Descriptor socket) : socket_(std::move(socket)) {}

  // Sends a frame. One that is interrupted half-way closes the connection: the rest could not be
  // told from a new frame.
  Status Send(uint32_t type, uint32_t request_id, const void* body, size_t body_bytes,
              const Deadline& deadline);

  // Receives the answer to `request_id`, the last request sent. Late answers to earlier ones are
  // dropped. The daemon's own error is returned as its code and message, with closed() false. With
  // `also`: returns DEADLINE_EXCEEDED early when that descriptor is readable.
  Status Receive(uint32_t request_type, uint32_t request_id, std::string* body,
                 Descriptor* descriptor, const Deadline& deadline, int also = -1);

  // Session's socket: one byte, never blocks, nothing happens when the daemon is gone.
  void RingDoorbell();
  // Session's socket: waits for a doorbell byte. UNAVAILABLE: end of file.
  Status WaitDoorbell(const Deadline& deadline);

  // Looks for an end of file without waiting.
  bool PeerGone();
  bool closed() const { return !socket_.valid(); }
  void Close() { socket_.Close(); }

 private:
  Status ReceiveFrame(const Deadline& deadline, int also);
  // Reads up to `wanted` bytes behind `*got`, and descriptors. OK only when all are there.
  Status ReadExactly(void* to, size_t wanted, size_t* got, const Deadline& deadline, int also);
  Status Broken(const std::string& what);
  Status Gone();

  Descriptor socket_;
  hr_header header_{};
  size_t header_got_ = 0, body_got_ = 0;
  bool body_sized_ = false;
  std::string body_;
  Descriptor descriptor_;
};

}  // namespace headrace::client
