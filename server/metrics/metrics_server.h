// /metrics for Prometheus (prometheus-cpp).
#pragma once

#include <memory>
#include <string>

#include "core/base/status.h"
#include "server/service.h"

namespace headrace {

class MetricsServer {
 public:
  // Serves http://ADDRESS:PORT/metrics with two threads. `service` outlives the server. UNAVAILABLE if the port is taken.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& address, int port, Service* service);
  ~MetricsServer();

 private:
  struct Parts;
  explicit MetricsServer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace headrace
