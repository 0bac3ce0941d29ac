// The daemon's end of a session's wake-up: one byte on its socket (docs/protocol.md, "Doorbells").
#pragma once

#include "core/base/status.h"
#include "core/base/unique_fd.h"

namespace headrace {

// Shared by the connection and by the decode threads. Holds its own descriptor of the socket, so a late ring of a session
// that ends never writes into a descriptor that means something else by then. All calls are thread-safe.
class Doorbell {
 public:
  static absl::StatusOr<Doorbell> ForSocket(int socket);

  // Never blocks. A full socket buffer is as good as a byte sent: the client has not read those before it.
  void Ring() const;
  // Ends the connection in both directions: the client and the event loop read an end of file.
  void HangUp() const;

 private:
  explicit Doorbell(UniqueFd socket) : socket_(std::move(socket)) {}
  UniqueFd socket_;
};

}  // namespace headrace
