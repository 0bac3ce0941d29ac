#include "client/connection.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

namespace headrace::client {
namespace {

// Bodies grow as they arrive, so that a wrong length costs no memory before its bytes are there.
constexpr size_t kGrowBytes = 256 * 1024;
constexpr int kMaxDescriptors = 8;

timespec ToTimespec(int64_t ns) {
  return {static_cast<time_t>(ns / 1000000000), static_cast<long>(ns % 1000000000)};
}

bool DaemonGone(int error) { return error == EPIPE || error == ECONNRESET || error == ENOTCONN; }

}  // namespace

Status WaitFor(int fd, short events, const Deadline& deadline, int also) {
  pollfd fds[2] = {{fd, events, 0}, {also, POLLIN, 0}};
  const timespec timeout = ToTimespec(deadline.remaining_ns());
  const int ready = ppoll(fds, also >= 0 ? 2 : 1, &timeout, nullptr);
  if (ready > 0) {
    if (fds[0].revents != 0) return {};
    return Error(HR_DEADLINE_EXCEEDED, "");
  }
  if (ready == 0) return Error(HR_DEADLINE_EXCEEDED, "the daemon did not answer in time");
  if (errno == EINTR) return Error(HR_INTERRUPTED, "interrupted by a signal");
  return Error(HR_INTERNAL, std::string("poll: ") + strerror(errno));
}

Status SleepMs(int64_t ms, const Deadline& deadline) {
  const timespec timeout = ToTimespec(std::min(ms * 1000000, deadline.remaining_ns()));
  if (ppoll(nullptr, 0, &timeout, nullptr) < 0 && errno == EINTR) {
    return Error(HR_INTERRUPTED, "interrupted by a signal");
  }
  return {};
}

Status Connection::Gone() {
  socket_.Close();
  return Error(HR_UNAVAILABLE, "the daemon closed the connection");
}

Status Connection::Broken(const std::string& what) {
  socket_.Close();
  return Error(HR_INTERNAL, "the daemon's answer is malformed: " + what);
}

Status Connection::Send(uint32_t type, uint32_t request_id, const void* body, size_t body_bytes,
                        const Deadline& deadline) {
  if (closed()) return Gone();
  if (body_bytes > HR_MAX_REQUEST_BYTES) {
    return Error(HR_INVALID_ARGUMENT, "a request of " + std::to_string(body_bytes) +
                                          " bytes is longer than " +
                                          std::to_string(HR_MAX_REQUEST_BYTES));
  }
  std::string frame(sizeof(hr_header), '\0');
  const hr_header header = {HR_MAGIC, type, static_cast<uint32_t>(body_bytes), request_id};
  memcpy(frame.data(), &header, sizeof header);
  frame.append(static_cast<const char*>(body), body_bytes);
  size_t sent = 0;
  while (sent < frame.size()) {
    const ssize_t n =
        send(socket_.get(), frame.data() + sent, frame.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0) {
      sent += static_cast<size_t>(n);
      continue;
    }
    if (errno == EINTR) continue;
    // A daemon that refuses says why before it closes: Receive finds that, or the end of file.
    if (errno != EAGAIN) return {};
    Status status = WaitFor(socket_.get(), POLLOUT, deadline);
    if (!status.ok()) {
      if (sent > 0) socket_.Close();
      return status;
    }
  }
  return {};
}

Status Connection::ReadExactly(void* to, size_t wanted, size_t* got, const Deadline& deadline,
                               int also) {
  while (*got < wanted) {
    iovec part = {static_cast<char*>(to) + *got, wanted - *got};
    alignas(cmsghdr) char control[CMSG_SPACE(kMaxDescriptors * sizeof(int))];
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    ssize_t n;
    int error;
    {
      const ForksHeldOff held;
      n = recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
      error = errno;
      for (cmsghdr* c = n >= 0 ? CMSG_FIRSTHDR(&message) : nullptr; c != nullptr;
           c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; ++i) {
          int fd;
          memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
          if (descriptor_.valid()) {
            close(fd);  // an answer carries one at most
          } else {
            descriptor_ = Descriptor(fd, held);
          }
        }
      }
    }
    if (n > 0) {
      *got += static_cast<size_t>(n);
    } else if (n == 0 || DaemonGone(error)) {
      return Gone();
    } else if (error == EAGAIN) {
      Status status = WaitFor(socket_.get(), POLLIN, deadline, also);
      if (!status.ok()) return status;
    } else if (error != EINTR) {
      return Broken(std::string("recvmsg: ") + strerror(error));
    }
  }
  return {};
}

Status Connection::ReceiveFrame(const Deadline& deadline, int also) {
  if (closed()) return Gone();
  Status status = ReadExactly(&header_, sizeof header_, &header_got_, deadline, also);
  if (!status.ok()) return status;
  if (!body_sized_) {
    if (header_.magic != HR_MAGIC) return Broken("wrong magic");
    if (header_.length > HR_MAX_ANSWER_BYTES)
      return Broken("a body of " + std::to_string(header_.length) + " bytes");
    body_.clear();
    body_got_ = 0;
    body_sized_ = true;
  }
  while (body_got_ < header_.length) {
    body_.resize(std::min<size_t>(header_.length, body_got_ + kGrowBytes));
    status = ReadExactly(body_.data(), body_.size(), &body_got_, deadline, also);
    if (!status.ok()) return status;
  }
  header_got_ = 0;
  body_sized_ = false;
  return {};
}

Status Connection::Receive(uint32_t request_type, uint32_t request_id, std::string* body,
                           Descriptor* descriptor, const Deadline& deadline, int also) {
  for (;;) {
    Status status = ReceiveFrame(deadline, also);
    if (!status.ok()) return status;
    Descriptor received = std::move(descriptor_);
    descriptor_ = Descriptor();
    // A refusal may come before any request; it has the id 0.
    const bool refusal = header_.type == HR_ERROR && header_.request_id == 0;
    if (!refusal && header_.request_id != request_id) {
      if (static_cast<int32_t>(header_.request_id - request_id) > 0)
        return Broken("an answer to a request not made");
      continue;
    }
    if (header_.type == HR_ERROR) {
      hr_error_body error;
      if (body_.size() < sizeof error) return Broken("a short error");
      memcpy(&error, body_.data(), sizeof error);
      if (error.message_bytes != body_.size() - sizeof error)
        return Broken("an error of a wrong length");
      if (refusal) socket_.Close();
      const int code =
          error.code >= 1 && error.code <= 16 ? static_cast<int>(error.code) : HR_INTERNAL;
      return Error(code, body_.substr(sizeof error));
    }
    if (header_.type != request_type + HR_ANSWER)
      return Broken("type " + std::to_string(header_.type));
    body->swap(body_);
    if (descriptor != nullptr) *descriptor = std::move(received);
    return {};
  }
}

void Connection::RingDoorbell() {
  if (closed()) return;
  const char byte = 1;
  // A full buffer means that a wake is on its way already.
  (void)!send(socket_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

Status Connection::WaitDoorbell(const Deadline& deadline) {
  if (closed()) return Gone();
  Status status = WaitFor(socket_.get(), POLLIN, deadline);
  if (!status.ok()) return status;
  char bytes[256];
  const ssize_t n = recv(socket_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) return {};
  return Gone();
}

bool Connection::PeerGone() {
  if (closed()) return true;
  char byte;
  const ssize_t n = recv(socket_.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

}  // namespace headrace::client
