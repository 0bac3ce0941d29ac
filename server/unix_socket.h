// Listening and connecting on Unix sockets: paths, or "@name" for abstract names.
#pragma once

#include <sys/types.h>

#include <string>

#include "core/base/status.h"
#include "core/base/unique_fd.h"
#include "server/peer.h"

namespace headrace {

// A listening socket and the file that belongs to it. Neither is inherited by children.
class ListeningSocket {
 public:
  // Binds and listens. Makes the socket's folder if only that is missing. A socket file where nobody listens is replaced;
  // ALREADY_EXISTS if somebody does (names his pid), or if something else has the name. Two processes that do this at
  // once are kept apart by a lock on the folder.
  static absl::StatusOr<ListeningSocket> Bind(const std::string& path, mode_t mode);
  // An inherited listening socket. INVALID_ARGUMENT if it is none.
  static absl::StatusOr<ListeningSocket> Adopt(int fd);

  int fd() const { return fd_.get(); }
  // Removes the file if it is still this socket's; nothing for adopted and abstract ones.
  void RemoveFile() const;

 private:
  UniqueFd fd_;
  std::string path_;  // "": no file
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// Connects; NOT_FOUND without such a socket, UNAVAILABLE if nobody listens. Accepts only a peer of this uid, root, or the
// owner of the socket's folder, else PERMISSION_DENIED: a stranger who took the name must not be believed.
absl::StatusOr<UniqueFd> ConnectTo(const std::string& path);

}  // namespace headrace
