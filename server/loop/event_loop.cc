#include "server/loop/event_loop.h"

#include <fcntl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/loop/connection.h"
#include "server/machine.h"

namespace headrace {

namespace asio = boost::asio;
using boost::system::error_code;
using std::chrono::milliseconds;

namespace {

// A private daemon that nobody connects to in this time was started by a process that is gone.
constexpr milliseconds kFirstConnection(10000);
// With no descriptor left, accept() fails until one is closed: trying at once again would burn a core.
constexpr milliseconds kAcceptPause(100);
constexpr int kAcceptsPerTurn = 16;

}  // namespace

class EventLoop::Impl {
 public:
  Impl(const EventLoopOptions& options, AccessList access, Service* service, Log* log)
      : options_(options),
        access_(std::move(access)),
        service_(*service),
        log_(*log),
        grace_(io_),
        context_{io_, *service, cold_, *log, milliseconds(options.frame_timeout_ms),
                 [this](Connection* connection) { OnClosed(connection); }},
        cold_(options.cold_threads, static_cast<size_t>(options.max_connections)) {}

  void AddListener(int fd, std::function<void(UniqueFd, const Peer&)> on_connection) {
    auto listener = std::make_unique<Listener>(io_, std::move(on_connection));
    listener->fd = fd;
    // The loop owns a copy; the caller keeps his.
    listener->descriptor.assign(fcntl(fd, F_DUPFD_CLOEXEC, 3));
    WaitForConnection(listener.get());
    listeners_.push_back(std::move(listener));
  }

  void ServeHandOver(int fd) {
    AddListener(fd, [this](UniqueFd socket, const Peer& peer) { Serve(std::move(socket), peer); });
  }

  void WatchSignals(int fd, std::function<void(int)> on_signal) {
    signals_ = std::make_unique<asio::posix::stream_descriptor>(io_, fcntl(fd, F_DUPFD_CLOEXEC, 3));
    on_signal_ = std::move(on_signal);
    WaitForSignal();
  }

  std::string Run() {
    if (options_.grace_ms >= 0) StartGrace(std::max(kFirstConnection, milliseconds(options_.grace_ms)));
    io_.run();
    return reason_;
  }

  void Stop(const std::string& reason) {
    asio::post(io_, [this, reason] { StopNow(reason); });
  }

 private:
  struct Listener {
    Listener(asio::io_context& io, std::function<void(UniqueFd, const Peer&)> callback)
        : descriptor(io), pause(io), on_connection(std::move(callback)) {}
    int fd = -1;
    asio::posix::stream_descriptor descriptor;
    asio::steady_timer pause;
    std::function<void(UniqueFd, const Peer&)> on_connection;
  };

  void WaitForConnection(Listener* listener) {
    listener->descriptor.async_wait(asio::posix::stream_descriptor::wait_read, [this, listener](error_code error) {
      if (!error && AcceptAll(listener)) WaitForConnection(listener);
    });
  }

  // False: a pause was started, after which it goes on by itself.
  bool AcceptAll(Listener* listener) {
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
      UniqueFd socket(accept4(listener->fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (socket.valid()) {
        OnAccepted(listener, std::move(socket));
        continue;
      }
      if (errno == EAGAIN) return true;
      if (errno == EINTR || errno == ECONNABORTED) continue;
      log_.Error(absl::StrCat("accept: ", std::strerror(errno)));
      listener->pause.expires_after(kAcceptPause);
      listener->pause.async_wait([this, listener](error_code error) {
        if (!error) WaitForConnection(listener);
      });
      return false;
    }
    return true;
  }

  void OnAccepted(Listener* listener, UniqueFd socket) {
    const absl::StatusOr<Peer> peer = ReadPeer(socket.get());
    if (!peer.ok()) return;
    if (!access_.Admits(*peer)) {
      return Refuse(socket, *peer, absl::PermissionDeniedError(absl::StrCat(
                                       "uid ", peer->uid, " may not use this daemon (its option --allow says who may)")));
    }
    listener->on_connection(std::move(socket), *peer);
  }

  void Serve(UniqueFd socket, const Peer& peer) {
    if (connections_.size() >= static_cast<size_t>(options_.max_connections)) {
      return Refuse(socket, peer, absl::ResourceExhaustedError(absl::StrCat(
                                      "the daemon has ", connections_.size(), " connections (--max-connections)")));
    }
    grace_.cancel();
    if (options_.grace_ms >= 0) JoinAffinity(peer.pid);
    try {
      auto connection = std::make_shared<Connection>(context_, std::move(socket), peer);
      connection->Start();
      connections_.insert(std::move(connection));
    } catch (const boost::system::system_error& error) {  // the kernel's limit of watched descriptors
      log_.Error(absl::StrCat("connection of pid ", peer.pid, ": ", error.what()));
    }
  }

  void Refuse(const UniqueFd& socket, const Peer& peer, const absl::Status& why) {
    // At most one line a second: a refused process may try again and again.
    const auto now = std::chrono::steady_clock::now();
    if (now - last_refusal_ > std::chrono::seconds(1)) {
      log_.Warn(absl::StrCat("refused a connection of pid ", peer.pid, ": ", std::string(why.message())));
      last_refusal_ = now;
    }
    const std::string frame = ErrorFrame(0, why);
    [[maybe_unused]] const ssize_t sent = send(socket.get(), frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }

  void OnClosed(Connection* connection) {
    connections_.erase(connection->shared_from_this());
    if (connections_.empty() && options_.grace_ms >= 0) StartGrace(milliseconds(options_.grace_ms));
  }

  void StartGrace(milliseconds time) {
    grace_.expires_after(time);
    grace_.async_wait([this](error_code error) {
      if (error || !connections_.empty()) return;
      for (const auto& listener : listeners_) AcceptAll(listener.get());  // who came at the last moment is served
      if (connections_.empty()) StopNow("its last client is gone");
    });
  }

  void WaitForSignal() {
    signals_->async_wait(asio::posix::stream_descriptor::wait_read, [this](error_code error) {
      if (error) return;
      signalfd_siginfo info;
      if (read(signals_->native_handle(), &info, sizeof(info)) == sizeof(info)) {
        on_signal_(static_cast<int>(info.ssi_signo));
      }
      WaitForSignal();
    });
  }

  void StopNow(const std::string& reason) {
    if (!reason_.empty()) return;
    reason_ = reason;
    service_.MarkStopping(reason);
    for (const auto& connection : connections_) connection->HangUp();
    io_.stop();
  }

  const EventLoopOptions options_;
  const AccessList access_;
  Service& service_;
  Log& log_;
  asio::io_context io_{1};
  asio::steady_timer grace_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::unique_ptr<asio::posix::stream_descriptor> signals_;
  std::function<void(int)> on_signal_;
  const Connection::Context context_;
  std::set<std::shared_ptr<Connection>> connections_;
  std::chrono::steady_clock::time_point last_refusal_;
  std::string reason_;
  ColdPool cold_;  // last, so that its tasks end before what they use
};

EventLoop::EventLoop(const EventLoopOptions& options, AccessList access, Service* service, Log* log)
    : impl_(std::make_unique<Impl>(options, std::move(access), service, log)) {}
EventLoop::~EventLoop() = default;

void EventLoop::ServeHandOver(int listening_socket) { impl_->ServeHandOver(listening_socket); }
void EventLoop::Accept(int listening_socket, std::function<void(UniqueFd, const Peer&)> on_connection) {
  impl_->AddListener(listening_socket, std::move(on_connection));
}
void EventLoop::WatchSignals(int signal_fd, std::function<void(int)> on_signal) {
  impl_->WatchSignals(signal_fd, std::move(on_signal));
}
std::string EventLoop::Run() { return impl_->Run(); }
void EventLoop::Stop(const std::string& reason) { impl_->Stop(reason); }

}  // namespace headrace
