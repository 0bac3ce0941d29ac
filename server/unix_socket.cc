#include "server/unix_socket.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <ctime>

#include "absl/strings/str_cat.h"

namespace headrace {
namespace {

constexpr int kBacklog = 512;

struct Address {
  sockaddr_un address = {};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

absl::StatusOr<Address> MakeAddress(const std::string& path) {
  Address result;
  result.address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(result.address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("socket path '", path, "': must have 1 to ",
                                                   sizeof(result.address.sun_path) - 1, " bytes"));
  }
  std::memcpy(result.address.sun_path, path.data(), path.size());
  if (path[0] == '@') result.address.sun_path[0] = '\0';
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + (path[0] == '@' ? 0 : 1));
  return result;
}

absl::StatusOr<UniqueFd> NewSocket(int flags) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  return fd;
}

std::string Folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// The folder, opened and locked against another daemon that starts at the same moment.
absl::StatusOr<UniqueFd> LockFolder(const std::string& folder) {
  if (mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) return ErrnoStatus(errno, "socket's folder " + folder);
  UniqueFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "socket's folder " + folder);
  for (int attempt = 0; flock(fd.get(), LOCK_EX | LOCK_NB) != 0; ++attempt) {
    if (errno != EWOULDBLOCK || attempt == 200) return ErrnoStatus(errno, "locking the socket's folder " + folder);
    const timespec pause = {0, 10'000'000};
    nanosleep(&pause, nullptr);
  }
  return fd;
}

// OK if the file was left behind by a daemon that is gone, and is removed now.
absl::Status RemoveStale(const std::string& path, const Address& address) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0) return ErrnoStatus(errno, path);
  if (!S_ISSOCK(info.st_mode)) return absl::AlreadyExistsError(absl::StrCat(path, " exists and is not a socket"));
  HEADRACE_ASSIGN_OR_RETURN(const UniqueFd probe, NewSocket(SOCK_NONBLOCK));
  if (connect(probe.get(), address.get(), address.length) == 0) {
    const absl::StatusOr<Peer> peer = ReadPeer(probe.get());
    return absl::AlreadyExistsError(
        absl::StrCat(path, ": a daemon listens there already (pid ", peer.ok() ? peer->pid : 0, ")"));
  }
  // EAGAIN: a full backlog, so somebody listens. Only a refusal proves that nobody does.
  if (errno != ECONNREFUSED) return absl::AlreadyExistsError(absl::StrCat(path, ": ", std::strerror(errno)));
  if (unlink(path.c_str()) != 0) return ErrnoStatus(errno, "removing the stale socket " + path);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ListeningSocket> ListeningSocket::Bind(const std::string& path, mode_t mode) {
  HEADRACE_ASSIGN_OR_RETURN(const Address address, MakeAddress(path));
  const bool is_file = path[0] != '@';
  UniqueFd lock;
  if (is_file) {
    HEADRACE_ASSIGN_OR_RETURN(lock, LockFolder(Folder(path)));
  }
  ListeningSocket result;
  HEADRACE_ASSIGN_OR_RETURN(result.fd_, NewSocket(SOCK_NONBLOCK));
  int bound = bind(result.fd_.get(), address.get(), address.length);
  if (bound != 0 && errno == EADDRINUSE && is_file) {
    HEADRACE_RETURN_IF_ERROR(RemoveStale(path, address));
    bound = bind(result.fd_.get(), address.get(), address.length);
  }
  if (bound != 0) {
    if (errno == EADDRINUSE) return absl::AlreadyExistsError(absl::StrCat(path, ": a daemon listens there already"));
    return ErrnoStatus(errno, "socket " + path);
  }
  if (is_file) {
    struct stat info = {};
    // Nobody can connect before listen(): the mode is right from the first moment on.
    if (chmod(path.c_str(), mode) != 0 || lstat(path.c_str(), &info) != 0) return ErrnoStatus(errno, "socket " + path);
    result.path_ = path;
    result.device_ = info.st_dev;
    result.inode_ = info.st_ino;
  }
  if (listen(result.fd_.get(), kBacklog) != 0) return ErrnoStatus(errno, "socket " + path);
  return result;
}

absl::StatusOr<ListeningSocket> ListeningSocket::Adopt(int fd) {
  int listening = 0;
  socklen_t length = sizeof(listening);
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) != 0 || listening == 0) {
    return absl::InvalidArgumentError(absl::StrCat("descriptor ", fd, " is not a listening socket"));
  }
  if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 || fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) {
    return ErrnoStatus(errno, "inherited socket");
  }
  ListeningSocket result;
  result.fd_ = UniqueFd(fd);
  return result;
}

void ListeningSocket::RemoveFile() const {
  struct stat info = {};
  if (path_.empty() || lstat(path_.c_str(), &info) != 0) return;
  if (info.st_dev == device_ && info.st_ino == inode_) unlink(path_.c_str());
}

absl::StatusOr<UniqueFd> ConnectTo(const std::string& path) {
  HEADRACE_ASSIGN_OR_RETURN(const Address address, MakeAddress(path));
  HEADRACE_ASSIGN_OR_RETURN(UniqueFd fd, NewSocket(0));
  if (connect(fd.get(), address.get(), address.length) != 0) {
    if (errno == ECONNREFUSED) return absl::UnavailableError(absl::StrCat(path, ": nobody listens there"));
    return ErrnoStatus(errno, path);
  }
  HEADRACE_ASSIGN_OR_RETURN(const Peer peer, ReadPeer(fd.get()));
  struct stat folder = {};
  const bool owns_folder = path[0] != '@' && stat(Folder(path).c_str(), &folder) == 0 && folder.st_uid == peer.uid;
  if (peer.uid != geteuid() && peer.uid != 0 && !owns_folder) {
    return absl::PermissionDeniedError(absl::StrCat(path, ": the daemon there runs as uid ", peer.uid));
  }
  return fd;
}

}  // namespace headrace
