// Who is at the other end of a Unix socket, and who may be.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/base/unique_fd.h"

namespace headrace {

// SO_PEERCRED and SO_PEERGROUPS: fixed when the peer connected (for a listener's client: when it listened).
struct Peer {
  pid_t pid = 0;  // 0: in another PID namespace
  uid_t uid = 0;
  std::vector<gid_t> groups;  // primary and supplementary
};

absl::StatusOr<Peer> ReadPeer(int socket);

// A pidfd of the peer's process: SO_PEERPIDFD, or pidfd_open before Linux 6.5. Readable when the process is dead. Not
// valid where the process cannot be named; then only the end of file tells its death.
UniqueFd OpenPeerPidfd(int socket, const Peer& peer);

// True once the process of a pidfd is dead.
bool IsDead(int pidfd);

class AccessList {
 public:
  // Only this process's uid (private daemons).
  static AccessList OwnUser();
  // This process's uid, root, and the entries: "uid:N", "gid:N", a user's name, "@" and a group's name.
  static absl::StatusOr<AccessList> Parse(const std::vector<std::string>& entries);

  bool Admits(const Peer& peer) const;

 private:
  std::vector<uid_t> uids_;
  std::vector<gid_t> gids_;
};

}  // namespace headrace
