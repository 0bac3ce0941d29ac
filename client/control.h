// A process's connection to its daemon: election of a private one, HELLO, cold requests.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "client/connection.h"
#include "client/private_daemon.h"
#include "client/protocol.h"
#include "client/status.h"

namespace headrace::client {

struct ConnectOptions {
  std::string address;
  PrivateDaemonOptions private_daemon;
};

// Waiting times between tries: 5, 10, 20, … 100 ms.
class Backoff {
 public:
  Status Wait(const Deadline& deadline) {
    const int64_t ms = next_ms_;
    next_ms_ = std::min<int64_t>(2 * next_ms_, 100);
    return SleepMs(ms, deadline);
  }

 private:
  int64_t next_ms_ = 5;
};

// One thread's turn at something, waited for with a deadline. (std::timed_mutex would do, but the
// thread sanitizer of GCC 12 does not know pthread_mutex_clocklock.)
class Turnstile {
 public:
  bool Enter(const Deadline& deadline);
  void Leave();

 private:
  std::mutex mutex_;
  std::condition_variable left_;
  bool taken_ = false;
};

// Thread-safe; one request at a time. Shared by the hr_client and its sessions, which need it after
// a daemon's death.
class Control {
 public:
  explicit Control(ConnectOptions options)
      : options_(std::move(options)), process_(CurrentProcess()) {}

  // Connects and says HELLO unless that is done and the daemon lives. Waits for a listener; starts
  // a private daemon. After DEADLINE_EXCEEDED or INTERRUPTED the next call goes on where this one
  // stopped.
  Status Establish(const Deadline& deadline);

  // Sends one request and receives its answer. With `retry`, again over new connections until the
  // deadline when the daemon has gone.
  Status Request(uint32_t type, const void* body, size_t body_bytes, bool retry,
                 const Deadline& deadline, std::string* answer, Descriptor* descriptor);

  // A further connection to the same daemon, for a session. One try.
  Status ConnectSession(std::unique_ptr<Connection>* out);

  void Close();
  uint64_t process() const { return process_; }
  const std::string& address() const { return options_.address; }
  int daemon_pid() const { return daemon_pid_.load(std::memory_order_relaxed); }

 private:
  Status EstablishInTurn(const Deadline& deadline);
  Status ConnectOnce(const Deadline& deadline);
  Status StartDaemon(const Deadline& deadline);
  Status Hello(const Deadline& deadline);
  Status AwaitHello(const Deadline& deadline);
  class Turn;

  const ConnectOptions options_;
  const uint64_t process_;
  std::atomic<int> daemon_pid_{0};

  Turnstile turnstile_;  // guards what follows
  std::unique_ptr<Connection> connection_;
  bool hello_sent_ = false, greeted_ = false;
  uint32_t last_request_id_ = 0;
  Descriptor words_;  // of a daemon that we started and that has not answered HELLO
  std::string last_words_;
  int failed_starts_ = 0;
};

}  // namespace headrace::client
