// What `headrace top` and the tests ask a daemon's gRPC front.
#pragma once

#include <memory>
#include <string>

#include "core/base/status.h"
#include "server/service.h"

namespace headrace {

class RpcClient {
 public:
  // `socket`: the hand-over socket's path; ".grpc" is added. The peer's uid is checked (ConnectTo).
  static absl::StatusOr<std::unique_ptr<RpcClient>> Connect(const std::string& socket);
  ~RpcClient();

  // Each waits at most this long; UNAVAILABLE when the daemon has gone.
  absl::StatusOr<ServiceStats> Stats(int timeout_ms);
  // The answer of DESCRIBE as JSON.
  absl::StatusOr<std::string> Describe(const std::string& dataset, int timeout_ms);
  absl::StatusOr<std::string> Audit(const std::string& spec_json, const Cursor& start, uint64_t step, int timeout_ms);
  absl::Status CloseSession(uint64_t id, int timeout_ms);
  absl::Status Shutdown(const std::string& reason, int timeout_ms);
  // grpc.health.v1: OK when it is serving.
  absl::Status CheckHealth(int timeout_ms);

 private:
  struct Channel;
  explicit RpcClient(std::unique_ptr<Channel> channel);
  std::unique_ptr<Channel> channel_;
};

}  // namespace headrace
