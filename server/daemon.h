// A whole daemon: pipeline, service and its fronts, wired as the settings say.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "server/log.h"
#include "server/loop/event_loop.h"
#include "server/metrics/metrics_server.h"
#include "server/service.h"
#include "server/settings.h"
#include "server/unix_socket.h"

namespace headrace {

class RpcServer;

class Daemon {
 public:
  // Makes the pipeline (Pipeline::Create, or a test's own).
  using MakePipeline = std::function<std::unique_ptr<Pipeline>(const PipelineOptions& options)>;

  // Binds the sockets and starts the threads; when it returns, clients can connect. `settings` are completed
  // (CompleteSettings). `signal_fd`: a signalfd of SIGTERM, SIGINT and SIGHUP, or -1. `log` outlives the daemon.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const Settings& settings, int signal_fd, Log* log,
                                                       const MakePipeline& make_pipeline = Pipeline::Create);
  // Closes the sessions, joins the threads, removes the socket files.
  ~Daemon();

  // What a SIGHUP does. Runs in the loop. Before Run.
  void SetReload(std::function<void()> reload) { reload_ = std::move(reload); }
  // Serves until a signal, Stop, or (private) its last client is gone. Returns the reason. The sockets' files are gone by
  // then.
  std::string Run();
  // Thread-safe.
  void Stop(const std::string& reason);

 private:
  Daemon(const Settings& settings, Log* log);
  absl::Status StartFronts(int signal_fd);
  void OnSignal(int signal);

  const Settings settings_;
  Log& log_;
  std::function<void()> reload_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<RpcServer> rpc_;
  std::unique_ptr<MetricsServer> metrics_;
  ListeningSocket socket_, rpc_socket_;
};

}  // namespace headrace
