#include "server/peer.h"

#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5
#endif

namespace headrace {

absl::StatusOr<Peer> ReadPeer(int socket) {
  ucred credentials = {};
  socklen_t length = sizeof(credentials);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return ErrnoStatus(errno, "peer's credentials");
  }
  Peer peer;
  peer.pid = credentials.pid;
  peer.uid = credentials.uid;
  peer.groups.resize(64);
  length = static_cast<socklen_t>(peer.groups.size() * sizeof(gid_t));
  int result = getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, peer.groups.data(), &length);
  if (result != 0 && errno == ERANGE) {  // `length` now says how much is needed
    peer.groups.resize(length / sizeof(gid_t));
    result = getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, peer.groups.data(), &length);
  }
  peer.groups.resize(result == 0 ? length / sizeof(gid_t) : 0);
  peer.groups.push_back(credentials.gid);
  return peer;
}

UniqueFd OpenPeerPidfd(int socket, const Peer& peer) {
  int fd = -1;
  socklen_t length = sizeof(fd);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &length) == 0) return UniqueFd(fd);
  if (peer.pid <= 0) return UniqueFd();
  return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
}

bool IsDead(int pidfd) {
  pollfd entry = {pidfd, POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

AccessList AccessList::OwnUser() {
  AccessList list;
  list.uids_ = {geteuid()};
  return list;
}

absl::StatusOr<AccessList> AccessList::Parse(const std::vector<std::string>& entries) {
  AccessList list = OwnUser();
  list.uids_.push_back(0);
  for (const std::string& entry : entries) {
    uint32_t number = 0;
    if (entry.rfind("uid:", 0) == 0 && absl::SimpleAtoi(entry.substr(4), &number)) {
      list.uids_.push_back(number);
    } else if (entry.rfind("gid:", 0) == 0 && absl::SimpleAtoi(entry.substr(4), &number)) {
      list.gids_.push_back(number);
    } else if (const group* found = entry[0] == '@' ? getgrnam(entry.c_str() + 1) : nullptr; found != nullptr) {
      list.gids_.push_back(found->gr_gid);
    } else if (const passwd* user = getpwnam(entry.c_str()); user != nullptr) {
      list.uids_.push_back(user->pw_uid);
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("allow = ", entry, ": no such user or group (uid:N, gid:N, user, @group)"));
    }
  }
  return list;
}

bool AccessList::Admits(const Peer& peer) const {
  if (std::find(uids_.begin(), uids_.end(), peer.uid) != uids_.end()) return true;
  return std::any_of(peer.groups.begin(), peer.groups.end(), [&](gid_t gid) {
    return std::find(gids_.begin(), gids_.end(), gid) != gids_.end();
  });
}

}  // namespace headrace
