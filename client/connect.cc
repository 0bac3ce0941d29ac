#include "client/connect.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>

namespace headrace::client {
namespace {

constexpr int kBacklog = 1024;  // more ranks than any node has

socklen_t ToSockaddr(const std::string& address, sockaddr_un* out) {
  memset(out, 0, sizeof *out);
  out->sun_family = AF_UNIX;
  memcpy(out->sun_path, address.data(), address.size());
  if (IsAbstract(address)) {
    out->sun_path[0] = '\0';
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
  }
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size() + 1);
}

Descriptor MakeSocket() {
  const ForksHeldOff held;
  return Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), held);
}

// SO_PEERCRED names who called listen(): for a private daemon the process that started it.
Status CheckPeer(const std::string& address, int socket) {
  ucred peer;
  socklen_t length = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return Error(HR_INTERNAL, std::string("SO_PEERCRED: ") + strerror(errno));
  }
  if (peer.uid == geteuid() || peer.uid == 0) return {};
  if (!IsAbstract(address)) {
    const size_t slash = address.rfind('/');
    const std::string folder = slash == std::string::npos ? "."
                               : slash == 0               ? "/"
                                                          : address.substr(0, slash);
    struct stat info;
    if (stat(folder.c_str(), &info) == 0 && info.st_uid == peer.uid) return {};
  }
  return Error(HR_PERMISSION_DENIED,
               "the process that listens at " + address + " belongs to uid " +
                   std::to_string(peer.uid) +
                   ", which is neither this user, nor root, nor the owner of the socket's folder");
}

}  // namespace

Status CheckAddress(const std::string& address) {
  if (address.empty() || address == "@")
    return Error(HR_INVALID_ARGUMENT, "the socket's name is empty");
  if (address.size() >= sizeof(sockaddr_un::sun_path)) {
    return Error(HR_INVALID_ARGUMENT, "the socket's name is longer than " +
                                          std::to_string(sizeof(sockaddr_un::sun_path) - 1) +
                                          " bytes: " + address);
  }
  return {};
}

Status Connect(const std::string& address, Descriptor* socket) {
  Descriptor made = MakeSocket();
  if (!made.valid()) return Error(HR_RESOURCE_EXHAUSTED, std::string("socket: ") + strerror(errno));
  sockaddr_un to;
  const socklen_t length = ToSockaddr(address, &to);
  if (connect(made.get(), reinterpret_cast<sockaddr*>(&to), length) != 0) {
    switch (errno) {
      case ECONNREFUSED:
      case ENOENT:
        return Error(HR_UNAVAILABLE, "no daemon listens at " + address);
      case EAGAIN:
      case EINTR:
        return Error(HR_UNAVAILABLE, "too many connections wait at " + address);
      case EACCES:
      case EPERM:
        return Error(HR_PERMISSION_DENIED, "this user may not connect to " + address);
      default:
        return Error(HR_UNAVAILABLE, "connect to " + address + ": " + strerror(errno));
    }
  }
  Status status = CheckPeer(address, made.get());
  if (!status.ok()) return status;
  *socket = std::move(made);
  return {};
}

Status BindAbstract(const std::string& address, Descriptor* listener, bool* taken) {
  *taken = false;
  Descriptor made;
  {
    const ForksHeldOff held;
    made = Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), held);
  }
  if (!made.valid()) return Error(HR_RESOURCE_EXHAUSTED, std::string("socket: ") + strerror(errno));
  sockaddr_un at;
  const socklen_t length = ToSockaddr(address, &at);
  if (bind(made.get(), reinterpret_cast<sockaddr*>(&at), length) != 0) {
    *taken = errno == EADDRINUSE;
    return Error(HR_UNAVAILABLE, "bind " + address + ": " + strerror(errno));
  }
  if (listen(made.get(), kBacklog) != 0)
    return Error(HR_INTERNAL, std::string("listen: ") + strerror(errno));
  *listener = std::move(made);
  return {};
}

}  // namespace headrace::client
