// The daemon's one thread for sockets: accepts, checks who it is, frames requests, watches processes die. It never reads
// a sample's bytes and never waits for a disk. Boost.Asio behind it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "server/log.h"
#include "server/peer.h"
#include "server/service.h"

namespace headrace {

struct EventLoopOptions {
  int max_connections = 1024;
  int frame_timeout_ms = 10000;
  int cold_threads = 2;
  // A private daemon: ends this long after its last connection, and runs on the processors of all its clients. -1: a
  // node's daemon.
  int grace_ms = -1;
};

class EventLoop {
 public:
  // `service` and `log` outlive the loop.
  EventLoop(const EventLoopOptions& options, AccessList access, Service* service, Log* log);
  ~EventLoop();

  // Before Run. Descriptors are borrowed and must be non-blocking.
  void ServeHandOver(int listening_socket);
  // Hands over connections that passed the access check (to gRPC).
  void Accept(int listening_socket, std::function<void(UniqueFd socket, const Peer& peer)> on_connection);
  // `on_signal` runs in the loop for every signal read from the signalfd.
  void WatchSignals(int signal_fd, std::function<void(int signal)> on_signal);

  // Until Stop, or until the grace time is over. Returns the reason. When it returns, all sessions have been told and all
  // sockets shut down.
  std::string Run();
  // Thread-safe; also before Run.
  void Stop(const std::string& reason);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace
