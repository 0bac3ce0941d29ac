// The daemon's gRPC front (proto/headrace.proto). It opens no socket: accepted connections are handed to it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/base/unique_fd.h"
#include "server/peer.h"
#include "server/service.h"

namespace headrace {

class RpcServer {
 public:
  // `service` outlives the server. `shutdown` is what Shutdown calls, from one of gRPC's threads. Starts gRPC's threads (at
  // most a dozen) only with the first connection.
  RpcServer(Service* service, std::function<void(const std::string& reason)> shutdown);
  // Cancels the calls under way and joins.
  ~RpcServer();

  // A connection whose peer has passed the access check. The daemon's own user and root may also close sessions and shut
  // down; others may look.
  void Serve(UniqueFd socket, const Peer& peer);

 private:
  class Front;
  Service* const service_;
  const std::function<void(const std::string&)> shutdown_;
  // One gRPC server for each kind of peer: a handler cannot ask gRPC who its peer is.
  std::unique_ptr<Front> owners_, guests_;
};

}  // namespace headrace
