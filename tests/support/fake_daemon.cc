#include "tests/support/fake_daemon.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <memory>

#include "tests/support/fake_session.h"

namespace headrace::fake {
namespace {

int64_t NowMs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void SendAll(int fd, const std::string& bytes, const std::vector<int>& fds) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    iovec part = {const_cast<char*>(bytes.data()) + sent, bytes.size() - sent};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
    if (sent == 0 && !fds.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
      cmsghdr* c = CMSG_FIRSTHDR(&message);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
      memcpy(CMSG_DATA(c), fds.data(), fds.size() * sizeof(int));
    }
    const ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL);
    if (n < 0) return;
    sent += static_cast<size_t>(n);
  }
}

std::string Frame(uint32_t magic, uint32_t type, uint32_t id, const std::string& body) {
  const hr_header header = {magic, type, static_cast<uint32_t>(body.size()), id};
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + body;
}

template <class T>
std::string Bytes(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string ErrorBody(uint32_t code, const std::string& message) {
  return Bytes(hr_error_body{code, static_cast<uint32_t>(message.size())}) + message;
}

class Daemon {
 public:
  Daemon(int listen_fd, const FakeDaemonOptions& options)
      : listen_fd_(listen_fd), options_(options) {}
  int Run();

 private:
  struct Peer {
    std::string input;
    std::unique_ptr<FakeSession> session;
  };
  void Accept();
  bool OnReadable(int fd, Peer& peer);  // false: close it
  bool OnFrame(int fd, Peer& peer, const hr_header& header, const std::string& body);
  bool OnOpen(int fd, Peer& peer, uint32_t id, const std::string& body);
  void DieIfItIsTime() const;
  bool FillAll();
  bool Expired();

  const int listen_fd_;
  const FakeDaemonOptions& options_;
  std::map<int, Peer> peers_;
  uint64_t last_session_ = 0;
  int64_t filled_ = 0, opens_ = 0, alone_since_ms_ = NowMs();
  bool connected_before_ = false;
};

int Daemon::Run() {
  if (options_.start_delay_ms > 0) usleep(static_cast<useconds_t>(options_.start_delay_ms * 1000));
  for (;;) {
    const bool filled = FillAll();
    if (filled_ == options_.stop_after) {
      for (auto& [fd, peer] : peers_) {
        if (peer.session) peer.session->Stop("told to stop");
      }
      return 0;
    }
    std::vector<pollfd> fds = {{listen_fd_, POLLIN, 0}};
    for (const auto& [fd, peer] : peers_) fds.push_back({fd, POLLIN, 0});
    poll(fds.data(), fds.size(), filled ? 0 : 20);
    if (fds[0].revents != 0) Accept();
    for (size_t i = 1; i < fds.size(); ++i) {
      const int fd = fds[i].fd;
      if (fds[i].revents != 0 && !OnReadable(fd, peers_[fd])) {
        close(fd);
        peers_.erase(fd);
        alone_since_ms_ = NowMs();
      }
    }
    if (Expired()) return 0;
  }
}

void Daemon::DieIfItIsTime() const {
  struct stat info;
  if (stat(options_.deaths.c_str(), &info) != 0 || info.st_size == 0) return;
  if (truncate(options_.deaths.c_str(), info.st_size - 1) == 0) raise(SIGKILL);
}

bool Daemon::Expired() {
  if (options_.grace_ms < 0 || !peers_.empty()) return false;
  return NowMs() - alone_since_ms_ >= (connected_before_ ? options_.grace_ms : 10000);
}

void Daemon::Accept() {
  const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) return;
  connected_before_ = true;
  if (!options_.refuse.empty()) {
    SendAll(fd, Frame(HR_MAGIC, HR_ERROR, 0, ErrorBody(7, options_.refuse)), {});
    close(fd);
    return;
  }
  peers_[fd];
}

bool Daemon::OnReadable(int fd, Peer& peer) {
  char bytes[65536];
  const ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
  if (n <= 0) return n < 0 && errno == EAGAIN;
  if (peer.session) return true;  // a doorbell: Fill looks at the words anyway
  peer.input.append(bytes, static_cast<size_t>(n));
  while (peer.input.size() >= sizeof(hr_header)) {
    hr_header header;
    memcpy(&header, peer.input.data(), sizeof header);
    if (header.magic != HR_MAGIC || header.length > HR_MAX_REQUEST_BYTES) return false;
    if (peer.input.size() < sizeof header + header.length) break;
    const std::string body = peer.input.substr(sizeof header, header.length);
    peer.input.erase(0, sizeof header + header.length);
    if (!OnFrame(fd, peer, header, body)) return false;
  }
  return true;
}

bool Daemon::OnFrame(int fd, Peer& peer, const hr_header& header, const std::string& body) {
  if (header.type == options_.silent) return true;
  const uint32_t answer = header.type + HR_ANSWER, id = header.request_id;
  switch (header.type) {
    case HR_HELLO: {
      hr_hello_answer hello = {options_.protocol_version, options_.order_version,
                               options_.pixel_version, getpid(), "fake"};
      SendAll(fd, Frame(HR_MAGIC, answer, id, Bytes(hello)), {});
      return true;
    }
    case HR_DESCRIBE:
      DieIfItIsTime();
      SendAll(fd, Frame(HR_MAGIC, answer, id, "{\"asked\": " + body + "}"), {});
      return true;
    case HR_SAMPLE: {
      const int memfd = memfd_create("sample", MFD_CLOEXEC);
      if (write(memfd, "sample bytes", 12) != 12) abort();
      SendAll(fd, Frame(HR_MAGIC, answer, id, "{\"image_bytes\": 12}"), {memfd});
      close(memfd);
      return true;
    }
    case HR_STATS:
      SendAll(fd, Frame(HR_MAGIC, answer, id, "{\"pid\": " + std::to_string(getpid()) + "}"), {});
      return true;
    case HR_AUDIT:
      SendAll(fd, Frame(HR_MAGIC, answer, id, std::string(3 << 20, 'a')), {});
      return true;
    case HR_SEEK: {
      if (options_.die_at_seek) raise(SIGKILL);
      hr_seek seek;
      memcpy(&seek, body.data(), sizeof seek);
      for (auto& [other_fd, other] : peers_) {
        if (!other.session || other.session->id() != seek.session_id) continue;
        if (seek.position > options_.size) {
          SendAll(fd, Frame(HR_MAGIC, HR_ERROR, id, ErrorBody(11, "position is behind the end")),
                  {});
          return true;
        }
        const uint32_t ticket = other.session->Seek(seek.epoch, seek.position);
        SendAll(fd, Frame(HR_MAGIC, answer, id, Bytes(hr_seek_answer{ticket, 0})), {});
        return true;
      }
      SendAll(fd, Frame(HR_MAGIC, HR_ERROR, id, ErrorBody(5, "no such session")), {});
      return true;
    }
    case HR_OPEN:
      return OnOpen(fd, peer, id, body);
    default:
      return false;
  }
}

bool Daemon::OnOpen(int fd, Peer& peer, uint32_t id, const std::string& body) {
  if (opens_++ < options_.exhausted) {
    SendAll(fd, Frame(HR_MAGIC, HR_ERROR, id, ErrorBody(8, "memory is held by a dying session")),
            {});
    return false;
  }
  auto session = std::make_unique<FakeSession>(options_, ++last_session_, body);
  hr_open_answer answer = session->Answer();
  std::vector<int> fds = {session->memfd()};
  uint32_t magic = HR_MAGIC, type = HR_OPEN + HR_ANSWER;
  const std::string& lie = options_.hostile;
  if (lie == "slots-none") answer.num_slots = 0;
  if (lie == "slots-many") answer.num_slots = 1000;
  if (lie == "fields-many") answer.num_fields = 1000;
  if (lie == "batch-none") answer.batch_size = 0;
  if (lie == "field-offset") answer.fields[0].offset = answer.slot_bytes;
  if (lie == "field-offset-wraps") answer.fields[0].offset = ~uint64_t{0} - 63;
  if (lie == "field-shape") answer.fields[0].shape[1] = int64_t{1} << 40;
  if (lie == "field-stride") answer.fields[0].strides[0] = -4;
  if (lie == "field-dims") answer.fields[0].ndim = 9;
  if (lie == "field-type") answer.fields[0].dtype = 77;
  if (lie == "field-name") memset(answer.fields[0].name, 'n', sizeof answer.fields[0].name);
  if (lie == "text-short") answer.fields[2].bytes = 4;
  if (lie == "device-bytes") answer.device_slot_bytes = ~uint64_t{0} - 4095;
  if (lie == "device-bytes-odd") answer.device_slot_bytes = answer.fields[0].bytes + 64;
  if (lie == "device-bytes-few") answer.device_slot_bytes = 4096;
  if (lie == "device-field") answer.device_slot_bytes = 1 << 20, answer.device_field = answer.num_fields;
  if (lie == "device-text") answer.device_slot_bytes = 1 << 20, answer.device_field = 2;
  if (lie == "report-offset") answer.error_offset = answer.slot_bytes;
  if (lie == "slot-bytes") answer.slot_bytes = ~uint64_t{0} - 4095;
  if (lie == "hash-endless") memset(answer.dataset_hash, 'f', sizeof answer.dataset_hash);
  if (lie == "no-memfd") fds.clear();
  if (lie == "three-memfds") fds.assign(3, session->memfd());
  if (lie == "socket-as-memfd") fds = {fd};
  if (lie == "magic") magic = 0x12345678;
  if (lie == "type") type = 0x177;
  if (lie == "id") id += 7;
  std::string bytes = Bytes(answer);
  if (lie == "short") bytes.resize(bytes.size() - 1);
  if (lie == "long") bytes.push_back('x');
  std::string frame = Frame(magic, type, id, bytes);
  if (lie == "length") memset(frame.data() + offsetof(hr_header, length), 0xFF, 4);
  if (lie == "half") frame.resize(frame.size() / 2);
  SendAll(fd, frame, fds);
  if (lie == "half") return false;
  peer.session = std::move(session);
  return true;
}

bool Daemon::FillAll() {
  bool any = false;
  for (auto& [fd, peer] : peers_) {
    if (!peer.session || filled_ == options_.stall_after) continue;
    bool wake;
    if (!peer.session->Fill(&wake)) continue;
    any = true;
    ++filled_;
    if (wake) (void)!send(fd, "w", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (filled_ == options_.die_after) raise(SIGKILL);
    if (filled_ == options_.stop_after) break;
    if (options_.delay_us > 0) usleep(static_cast<useconds_t>(options_.delay_us));
  }
  return any;
}

}  // namespace

int ServeFakeDaemon(int listen_fd, const FakeDaemonOptions& options) {
  return Daemon(listen_fd, options).Run();
}

}  // namespace headrace::fake
