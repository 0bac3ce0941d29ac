// One accepted hand-over connection, from its first frame to its end. Lives in the event loop's thread.
#pragma once

// clang-format off: Boost 1.74's awaitable.hpp needs <utility> and does not include it.
#include <utility>
// clang-format on

#include <boost/asio.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "client/protocol.h"
#include "server/cold_pool.h"
#include "server/log.h"
#include "server/peer.h"
#include "server/service.h"

namespace headrace {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  struct Context {
    boost::asio::io_context& io;
    Service& service;
    ColdPool& cold;
    Log& log;
    std::chrono::milliseconds frame_timeout;
    std::function<void(Connection*)> on_closed;
  };
  enum class State {
    kGreeting,  // no complete frame yet
    kControl,   // HELLO was its first frame: requests and answers
    kOpening,   // OPEN was: not answered yet
    kSession,   // doorbells only
    kClosed,
  };

  // The context outlives the connection's work, not the object.
  Connection(const Context& context, UniqueFd socket, Peer peer);
  void Start();
  // Ends it without touching its session: the daemon stops, and the service closes all sessions together.
  void HangUp();

 private:
  struct Answer {
    std::string bytes;  // header and body
    size_t sent = 0;
    UniqueFd fd;
    bool then_close = false;
  };

  void WaitReadable();
  void OnReadable();
  void Advance();
  void Dispatch(const hr_header& header, std::string body);
  void Hello(uint32_t id, const std::string& body);
  void Seek(uint32_t id, const std::string& body);
  void Open(uint32_t id, std::string body);
  void OnOpened(uint32_t id, absl::StatusOr<OpenedSession> opened);
  void DeviceMemory(uint32_t id, const std::string& body);
  void RunCold(uint32_t type, uint32_t id, std::string body);

  void Reply(uint32_t type, uint32_t id, const void* body, size_t size, UniqueFd fd = UniqueFd());
  void Reply(uint32_t type, uint32_t id, const absl::StatusOr<std::string>& json);
  void ReplyError(uint32_t id, const absl::Status& status, bool then_close = false);
  void Send();
  void OnSent();

  void WatchProcess();
  void ArmDeadline(const char* what);
  void DisarmDeadline();
  // The end of the connection and, if it has one, of its session.
  void Finish(const std::string& why);
  // Closing the session of a process that may be dying: its memory must go even where a forked child still maps it.
  void CloseSession();

  const Context& context_;
  boost::asio::local::stream_protocol::socket socket_;
  const Peer peer_;
  boost::asio::posix::stream_descriptor process_;  // pidfd
  boost::asio::steady_timer deadline_;
  bool deadline_armed_ = false;
  State state_ = State::kGreeting;
  std::string input_;  // what was read and not taken; nothing is read while a request is being answered
  Answer answer_;
  std::shared_ptr<Session> session_;
};

// An error's frame.
std::string ErrorFrame(uint32_t request_id, const absl::Status& status);

}  // namespace headrace
