#include "server/loop/connection.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/loop/send_with_fd.h"

namespace headrace {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr size_t kReadBytes = 64 << 10;
// How long the memory of a session is watched whose socket closed while its process was still alive. A killed process
// closes its descriptors a moment before its pidfd says so.
constexpr std::chrono::milliseconds kDyingTime(100);

std::string Frame(uint32_t type, uint32_t id, const void* body, size_t size) {
  const hr_header header = {HR_MAGIC, type, static_cast<uint32_t>(size), id};
  std::string frame(sizeof(header) + size, '\0');
  std::memcpy(frame.data(), &header, sizeof(header));
  if (size > 0) std::memcpy(frame.data() + sizeof(header), body, size);
  return frame;
}

bool IsRequest(uint32_t type) { return type >= HR_HELLO && type <= HR_DEVICE_MEMORY; }

}  // namespace

std::string ErrorFrame(uint32_t request_id, const absl::Status& status) {
  const std::string message(status.message());
  const hr_error_body fixed = {static_cast<uint32_t>(status.code()), static_cast<uint32_t>(message.size())};
  std::string body(sizeof(fixed), '\0');
  std::memcpy(body.data(), &fixed, sizeof(fixed));
  body += message;
  return Frame(HR_ERROR, request_id, body.data(), body.size());
}

Connection::Connection(const Context& context, UniqueFd socket, Peer peer)
    : context_(context),
      socket_(context.io, asio::local::stream_protocol(), socket.release()),
      peer_(std::move(peer)),
      process_(context.io),
      deadline_(context.io) {}

void Connection::Start() {
  WatchProcess();
  ArmDeadline("its first request");
  WaitReadable();
}

// ---- Reading ----

void Connection::WaitReadable() {
  socket_.async_wait(socket_.wait_read, [self = shared_from_this()](error_code error) {
    if (self->state_ == State::kClosed) return;
    if (error) return self->Finish(error.message());
    self->OnReadable();
  });
}

void Connection::OnReadable() {
  char bytes[kReadBytes];
  // Descriptors that a peer might send along are dropped by the kernel: there is no room for them.
  const ssize_t size = recv(socket_.native_handle(), bytes, sizeof(bytes), MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return WaitReadable();
  if (size <= 0) return Finish(size == 0 ? "end of file" : std::strerror(errno));
  if (state_ == State::kSession) {
    session_->OnDoorbell();
    return WaitReadable();
  }
  input_.append(bytes, static_cast<size_t>(size));
  Advance();
}

// Takes the next complete frame out of the input, or waits for the rest of it.
void Connection::Advance() {
  hr_header header;
  if (input_.size() >= sizeof(header)) {
    std::memcpy(&header, input_.data(), sizeof(header));
    if (header.magic != HR_MAGIC) return Finish("wrong magic");
    if (!IsRequest(header.type)) return Finish(absl::StrCat("unknown request type ", header.type));
    if (header.length > HR_MAX_REQUEST_BYTES) return Finish(absl::StrCat("request of ", header.length, " bytes"));
    if (input_.size() >= sizeof(header) + header.length) {
      DisarmDeadline();
      std::string body = input_.substr(sizeof(header), header.length);
      input_.erase(0, sizeof(header) + header.length);
      return Dispatch(header, std::move(body));
    }
  }
  if (!input_.empty()) ArmDeadline("the rest of a request");
  WaitReadable();
}

// ---- Requests ----

void Connection::Dispatch(const hr_header& header, std::string body) {
  const uint32_t id = header.request_id;
  if (state_ == State::kGreeting && header.type != HR_HELLO && header.type != HR_OPEN) {
    return ReplyError(id, absl::FailedPreconditionError("the first request must be HELLO or OPEN"), true);
  }
  switch (header.type) {
    case HR_HELLO: return Hello(id, body);
    case HR_OPEN: return Open(id, std::move(body));
    case HR_SEEK: return Seek(id, body);
    case HR_DEVICE_MEMORY: return DeviceMemory(id, body);
    case HR_STATS: return Reply(HR_STATS, id, context_.service.StatsJson(body));
    default: return RunCold(header.type, id, std::move(body));
  }
}

void Connection::Hello(uint32_t id, const std::string& body) {
  hr_hello hello;
  if (body.size() != sizeof(hello)) return ReplyError(id, absl::InvalidArgumentError("HELLO has the wrong length"), true);
  std::memcpy(&hello, body.data(), sizeof(hello));
  if (hello.protocol_version != HR_PROTOCOL_VERSION) {
    return ReplyError(id,
                      absl::FailedPreconditionError(absl::StrCat("the client speaks protocol ", hello.protocol_version,
                                                                 ", the daemon ", HR_PROTOCOL_VERSION)),
                      true);
  }
  state_ = State::kControl;
  hr_hello_answer answer = {};
  answer.protocol_version = HR_PROTOCOL_VERSION;
  answer.order_version = kOrderVersion;
  answer.pixel_version = kPixelVersion;
  answer.daemon_pid = getpid();
  std::strncpy(answer.version, HEADRACE_VERSION, sizeof(answer.version) - 1);
  Reply(HR_HELLO, id, &answer, sizeof(answer));
}

void Connection::Seek(uint32_t id, const std::string& body) {
  hr_seek request;
  if (body.size() != sizeof(request)) return ReplyError(id, absl::InvalidArgumentError("SEEK has the wrong length"));
  std::memcpy(&request, body.data(), sizeof(request));
  const absl::StatusOr<hr_seek_answer> answer = context_.service.Seek(request, peer_);
  if (!answer.ok()) return ReplyError(id, answer.status());
  Reply(HR_SEEK, id, &*answer, sizeof(*answer));
}

void Connection::DeviceMemory(uint32_t id, const std::string& body) {
  absl::StatusOr<AnswerWithFd> answer = context_.service.DeviceMemory(body, peer_);
  if (!answer.ok()) return ReplyError(id, answer.status());
  Reply(HR_DEVICE_MEMORY, id, answer->json.data(), answer->json.size(), std::move(answer->fd));
}

void Connection::RunCold(uint32_t type, uint32_t id, std::string body) {
  const bool taken = context_.cold.Submit([self = shared_from_this(), &context = context_, type, id,
                                           body = std::move(body)] {
    absl::StatusOr<std::string> json = absl::InternalError("no such request");
    auto image = std::make_shared<UniqueFd>();
    if (type == HR_DESCRIBE) json = context.service.Describe(body);
    if (type == HR_AUDIT) json = context.service.Audit(body);
    if (type == HR_SAMPLE) {
      absl::StatusOr<AnswerWithFd> sample = context.service.Sample(body);
      if (sample.ok()) *image = std::move(sample->fd);
      json = sample.ok() ? absl::StatusOr<std::string>(std::move(sample->json)) : sample.status();
    }
    asio::post(context.io, [self, type, id, json = std::move(json), image] {
      if (self->state_ == State::kClosed) return;
      if (!image->valid()) return self->Reply(type, id, json);
      self->Reply(type, id, json->data(), json->size(), std::move(*image));
    });
  });
  if (!taken) ReplyError(id, absl::ResourceExhaustedError("too many requests are waiting for the disk"));
}

void Connection::Open(uint32_t id, std::string body) {
  if (state_ != State::kGreeting) {
    return ReplyError(id, absl::InvalidArgumentError("OPEN must be the first request of a connection of its own"));
  }
  state_ = State::kOpening;
  absl::StatusOr<Doorbell> bell = Doorbell::ForSocket(socket_.native_handle());
  if (!bell.ok()) return ReplyError(id, bell.status(), true);
  auto shared_bell = std::make_shared<const Doorbell>(*std::move(bell));
  const bool taken = context_.cold.Submit([self = shared_from_this(), &context = context_, id, body = std::move(body),
                                           shared_bell = std::move(shared_bell)] {
    absl::StatusOr<OpenedSession> opened = context.service.Open(body, self->peer_, shared_bell);
    asio::post(context.io, [self, id, opened = std::move(opened)] { self->OnOpened(id, opened); });
  });
  if (!taken) ReplyError(id, absl::ResourceExhaustedError("too many requests are waiting for the disk"), true);
}

void Connection::OnOpened(uint32_t id, absl::StatusOr<OpenedSession> opened) {
  if (!opened.ok()) return state_ == State::kClosed ? void() : ReplyError(id, opened.status(), true);
  if (state_ == State::kClosed) {  // the process died meanwhile; nobody has mapped the ring
    return context_.service.Close(opened->session->id(), RingMemory::kDiscard);
  }
  session_ = opened->session;
  UniqueFd memfd(fcntl(session_->ring().fd(), F_DUPFD_CLOEXEC, 3));
  if (!memfd.valid()) return ReplyError(id, ErrnoStatus(errno, "the ring's memfd"), true);
  context_.log.Info(absl::StrCat("session ", session_->id(), ": opened by pid ", peer_.pid, ", ",
                                 session_->spec().dataset->dir(), ", rank ", session_->spec().rank, " of ",
                                 session_->spec().world_size, ", ", session_->ring().total_bytes() >> 20, " MiB",
                                 session_->ring().device() != nullptr ? ", GPU engine" : ""));
  Reply(HR_OPEN, id, &opened->answer, sizeof(opened->answer), std::move(memfd));
}

// ---- Answers ----

void Connection::Reply(uint32_t type, uint32_t id, const void* body, size_t size, UniqueFd fd) {
  answer_ = Answer{Frame(type + HR_ANSWER, id, body, size), 0, std::move(fd), false};
  Send();
}

void Connection::Reply(uint32_t type, uint32_t id, const absl::StatusOr<std::string>& json) {
  if (!json.ok()) return ReplyError(id, json.status());
  if (json->size() > HR_MAX_ANSWER_BYTES) {
    return ReplyError(id, absl::ResourceExhaustedError(absl::StrCat("the answer has ", json->size(), " bytes")));
  }
  Reply(type, id, json->data(), json->size());
}

void Connection::ReplyError(uint32_t id, const absl::Status& status, bool then_close) {
  answer_ = Answer{ErrorFrame(id, status), 0, UniqueFd(), then_close};
  Send();
}

void Connection::Send() {
  while (answer_.sent < answer_.bytes.size()) {
    const ssize_t sent = SendWithFd(socket_.native_handle(), answer_.bytes.data() + answer_.sent,
                                    answer_.bytes.size() - answer_.sent, answer_.fd.get());
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) {
      ArmDeadline("an answer to be taken");
      return socket_.async_wait(socket_.wait_write, [self = shared_from_this()](error_code error) {
        if (self->state_ == State::kClosed) return;
        if (error) return self->Finish(error.message());
        self->Send();
      });
    }
    if (sent < 0) return Finish(std::strerror(errno));
    answer_.sent += static_cast<size_t>(sent);
    answer_.fd = UniqueFd();  // went with the first byte
  }
  OnSent();
}

void Connection::OnSent() {
  DisarmDeadline();
  const bool then_close = answer_.then_close;
  answer_ = Answer();
  if (then_close) return Finish("refused");
  if (state_ == State::kOpening) {
    state_ = State::kSession;
    if (!input_.empty()) session_->OnDoorbell();
    input_ = std::string();
    return WaitReadable();
  }
  // Not from here: a client that sends its requests in one go must not nest calls without end.
  asio::post(context_.io, [self = shared_from_this()] {
    if (self->state_ != State::kClosed) self->Advance();
  });
}

// ---- Ends ----

void Connection::WatchProcess() {
  UniqueFd pidfd = OpenPeerPidfd(socket_.native_handle(), peer_);
  if (!pidfd.valid()) return;
  process_.assign(pidfd.release());
  process_.async_wait(process_.wait_read, [self = shared_from_this()](error_code error) {
    if (!error && self->state_ != State::kClosed) self->Finish("its process is dead");
  });
}

void Connection::ArmDeadline(const char* what) {
  if (deadline_armed_) return;
  deadline_armed_ = true;
  deadline_.expires_after(context_.frame_timeout);
  deadline_.async_wait([self = shared_from_this(), what](error_code error) {
    if (error || self->state_ == State::kClosed || !self->deadline_armed_) return;
    self->Finish(absl::StrCat("waited too long for ", what));
  });
}

void Connection::DisarmDeadline() {
  deadline_armed_ = false;
  deadline_.cancel();
}

void Connection::CloseSession() {
  const uint64_t id = session_->id();
  if (process_.is_open() && IsDead(process_.native_handle())) {
    return context_.service.Close(id, RingMemory::kDiscard);
  }
  auto memfd = std::make_shared<UniqueFd>(fcntl(session_->ring().fd(), F_DUPFD_CLOEXEC, 3));
  const off_t bytes = static_cast<off_t>(session_->ring().total_bytes());
  context_.service.Close(id, RingMemory::kKeep);
  if (!process_.is_open() || !memfd->valid()) return;
  auto pidfd = std::make_shared<UniqueFd>(process_.release());
  auto timer = std::make_shared<asio::steady_timer>(context_.io, kDyingTime);
  timer->async_wait([timer, memfd, pidfd, bytes](error_code) {
    if (!IsDead(pidfd->get())) return;
    fallocate(memfd->get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, bytes);
  });
}

void Connection::Finish(const std::string& why) {
  if (state_ == State::kClosed) return;
  context_.log.Debug(absl::StrCat("connection of pid ", peer_.pid, " closed: ", why));
  if (session_ != nullptr) {
    context_.log.Info(absl::StrCat("session ", session_->id(), ": closed (", why, ")"));
    CloseSession();
    session_ = nullptr;
  }
  HangUp();
  context_.on_closed(this);
}

void Connection::HangUp() {
  state_ = State::kClosed;
  error_code ignored;
  deadline_.cancel(ignored);
  // The doorbell's copy of the descriptor keeps the socket open; the client must see the end now.
  socket_.shutdown(socket_.shutdown_both, ignored);
  socket_.close(ignored);
  process_.close(ignored);
}

}  // namespace headrace
