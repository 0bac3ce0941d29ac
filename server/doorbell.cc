#include "server/doorbell.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>

namespace headrace {

absl::StatusOr<Doorbell> Doorbell::ForSocket(int socket) {
  UniqueFd copy(fcntl(socket, F_DUPFD_CLOEXEC, 3));
  if (!copy.valid()) return ErrnoStatus(errno, "session's socket");
  return Doorbell(std::move(copy));
}

void Doorbell::Ring() const {
  const char byte = 1;
  // A failure means that the client is gone or has unread bytes: nothing to do in either case.
  [[maybe_unused]] const ssize_t sent = send(socket_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void Doorbell::HangUp() const { shutdown(socket_.get(), SHUT_RDWR); }

}  // namespace headrace
