#include "client/control.h"

#include <poll.h>
#include <string.h>

#include <chrono>

#include "client/connect.h"

namespace headrace::client {
namespace {

constexpr int kMaxFailedStarts = 3;
constexpr int64_t kWordsMs =
    200;  // how long a daemon that closed our connection may take to say why

}  // namespace

bool Turnstile::Enter(const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  if (!left_.wait_for(lock, std::chrono::nanoseconds(deadline.remaining_ns()),
                      [this] { return !taken_; }))
    return false;
  taken_ = true;
  return true;
}

void Turnstile::Leave() {
  {
    const std::lock_guard lock(mutex_);
    taken_ = false;
  }
  left_.notify_one();
}

class Control::Turn {
 public:
  Turn(Control* control, const Deadline& deadline)
      : control_(control), entered_(control->turnstile_.Enter(deadline)) {
    if (!entered_) {
      status_ =
          Error(HR_DEADLINE_EXCEEDED, "another thread's request to the daemon at " +
                                          control->options_.address + " is not answered after " +
                                          std::to_string(deadline.timeout_ms()) + " ms");
    }
  }
  ~Turn() {
    if (entered_) control_->turnstile_.Leave();
  }
  const Status& status() const { return status_; }

 private:
  Control* const control_;
  const bool entered_;
  Status status_;
};

Status Control::Establish(const Deadline& deadline) {
  const Turn turn(this, deadline);
  return turn.status().ok() ? EstablishInTurn(deadline) : turn.status();
}

Status Control::EstablishInTurn(const Deadline& deadline) {
  if (greeted_ && connection_ != nullptr && !connection_->PeerGone()) return {};
  if (greeted_) {
    connection_.reset();
    greeted_ = hello_sent_ = false;
  }
  Backoff backoff;
  for (;;) {
    Status status = connection_ == nullptr ? ConnectOnce(deadline) : Status{};
    if (status.ok()) status = Hello(deadline);
    if (status.ok()) {
      failed_starts_ = 0;
      return status;
    }
    if (status.code != HR_UNAVAILABLE) return status;
    if (failed_starts_ >= kMaxFailedStarts) {
      failed_starts_ = 0;
      return Error(HR_UNAVAILABLE,
                   "the private daemon did not start in " + std::to_string(kMaxFailedStarts) +
                       " tries: " + (last_words_.empty() ? status.message : last_words_));
    }
    if (deadline.passed()) {
      return Error(HR_DEADLINE_EXCEEDED,
                   status.message + " (waited " + std::to_string(deadline.timeout_ms()) + " ms)");
    }
    status = backoff.Wait(deadline);
    if (!status.ok()) return status;
  }
}

Status Control::ConnectOnce(const Deadline& deadline) {
  for (;;) {
    Descriptor socket;
    Status status = Connect(options_.address, &socket);
    if (status.ok()) {
      connection_ = std::make_unique<Connection>(std::move(socket));
      hello_sent_ = false;
      return status;
    }
    if (status.code != HR_UNAVAILABLE || options_.private_daemon.executable.empty() ||
        deadline.passed()) {
      return status;
    }
    // Whoever can bind the name starts the daemon; the others find it bound and connect.
    status = StartDaemon(deadline);
    if (!status.ok()) return status;
  }
}

// OK: connect again.
Status Control::StartDaemon(const Deadline& deadline) {
  if (words_.valid()) {  // the daemon that we started last is gone before it served
    last_words_ = ReadWords(words_.get(), deadline.NotAfterMs(kWordsMs));
    words_.Close();
    ++failed_starts_;
    return Error(HR_UNAVAILABLE, "the private daemon ended while it started");
  }
  Descriptor listener;
  bool taken = false;
  Status status = BindAbstract(options_.address, &listener, &taken);
  if (taken) return SleepMs(1, deadline);
  if (!status.ok()) return status;
  status = StartPrivateDaemon(options_.private_daemon, std::move(listener), deadline, &words_);
  if (status.code == HR_UNAVAILABLE) {
    last_words_ = status.message;
    ++failed_starts_;
  }
  return status;
}

Status Control::Hello(const Deadline& deadline) {
  Status status;
  if (!hello_sent_) {
    const hr_hello hello = {HR_PROTOCOL_VERSION, 0};
    status = connection_->Send(HR_HELLO, ++last_request_id_, &hello, sizeof hello, deadline);
    hello_sent_ = status.ok();
  }
  if (status.ok()) status = AwaitHello(deadline);
  if (status.ok()) {
    greeted_ = true;
    words_.Close();
    return status;
  }
  if (status.code == HR_DEADLINE_EXCEEDED || status.code == HR_INTERRUPTED) {
    if (status.code == HR_DEADLINE_EXCEEDED) {
      status.message = "the daemon at " + options_.address + " did not answer HELLO within " +
                       std::to_string(deadline.timeout_ms()) + " ms";
    }
    if (!connection_->closed()) return status;
  }
  connection_.reset();
  hello_sent_ = false;
  if (status.code == HR_UNAVAILABLE && words_.valid()) {
    last_words_ = ReadWords(words_.get(), deadline.NotAfterMs(kWordsMs));
    words_.Close();
    ++failed_starts_;
  }
  return status;
}

Status Control::AwaitHello(const Deadline& deadline) {
  std::string body;
  Status status;
  // A daemon that we started and that cannot start says so in its pipe, perhaps before our
  // connection ends.
  for (bool watch_words = words_.valid();; watch_words = false) {
    status = connection_->Receive(HR_HELLO, last_request_id_, &body, nullptr, deadline,
                                  watch_words ? words_.get() : -1);
    if (!watch_words || status.code != HR_DEADLINE_EXCEEDED || deadline.passed()) break;
    const std::string words = ReadWords(words_.get(), deadline);
    if (!words.empty()) {
      words_.Close();
      last_words_ = words;
      ++failed_starts_;
      connection_->Close();
      return Error(HR_UNAVAILABLE, words);
    }
  }
  if (!status.ok()) return status;
  hr_hello_answer answer;
  if (body.size() != sizeof answer) {
    return Error(HR_INTERNAL,
                 "the daemon's answer to HELLO has " + std::to_string(body.size()) + " bytes");
  }
  memcpy(&answer, body.data(), sizeof answer);
  if (answer.protocol_version != HR_PROTOCOL_VERSION) {
    return Error(HR_FAILED_PRECONDITION,
                 "the daemon at " + options_.address + " speaks protocol version " +
                     std::to_string(answer.protocol_version) + ", this client " +
                     std::to_string(HR_PROTOCOL_VERSION));
  }
  daemon_pid_.store(answer.daemon_pid, std::memory_order_relaxed);
  return {};
}

Status Control::Request(uint32_t type, const void* body, size_t body_bytes, bool retry,
                        const Deadline& deadline, std::string* answer, Descriptor* descriptor) {
  const Turn turn(this, deadline);
  Status status = turn.status();
  if (!status.ok()) return status;
  for (Backoff backoff;;) {
    status = EstablishInTurn(deadline);
    if (!status.ok()) return status;
    const uint32_t id = ++last_request_id_;
    status = connection_->Send(type, id, body, body_bytes, deadline);
    if (status.ok()) status = connection_->Receive(type, id, answer, descriptor, deadline);
    if (status.code == HR_DEADLINE_EXCEEDED) {
      status.message = "the daemon at " + options_.address + " did not answer within " +
                       std::to_string(deadline.timeout_ms()) + " ms";
    }
    if (!connection_->closed()) return status;
    connection_.reset();
    greeted_ = hello_sent_ = false;
    if (status.code != HR_UNAVAILABLE || !retry) return status;
    if (deadline.passed()) {
      return Error(HR_DEADLINE_EXCEEDED,
                   status.message + " (waited " + std::to_string(deadline.timeout_ms()) + " ms)");
    }
    status = backoff.Wait(deadline);
    if (!status.ok()) return status;
  }
}

Status Control::ConnectSession(std::unique_ptr<Connection>* out) {
  Descriptor socket;
  Status status = Connect(options_.address, &socket);
  if (status.ok()) *out = std::make_unique<Connection>(std::move(socket));
  return status;
}

void Control::Close() {
  // Another thread's request, which nobody should be making now, has its own deadline.
  const Turn turn(this, Deadline::AfterMs(int64_t{1} << 40));
  connection_.reset();
  greeted_ = hello_sent_ = false;
}

}  // namespace headrace::client
