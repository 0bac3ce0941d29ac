#include "server/daemon.h"

#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/device/cuda/cuda_gpu.h"
#ifdef HEADRACE_GRPC
#include "server/rpc/rpc_server.h"
#endif

namespace headrace {

#ifndef HEADRACE_GRPC
class RpcServer {};
#endif

namespace {

// A session takes three descriptors, a shard two: the usual soft limit of 1024 is soon reached.
void RaiseDescriptorLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Daemon::Daemon(const Settings& settings, Log* log) : settings_(settings), log_(*log) {}

Daemon::~Daemon() {
  socket_.RemoveFile();
  rpc_socket_.RemoveFile();
  rpc_ = nullptr;  // its calls use the service and the loop
  metrics_ = nullptr;
  loop_ = nullptr;
  service_ = nullptr;
}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const Settings& settings, int signal_fd, Log* log,
                                                      const MakePipeline& make_pipeline) {
  RaiseDescriptorLimit();
  DataRoots roots = DataRoots::Unrestricted();
  AccessList access = AccessList::OwnUser();
  if (!settings.private_daemon) {
    HEADRACE_ASSIGN_OR_RETURN(roots, DataRoots::Create(settings.data));
    HEADRACE_ASSIGN_OR_RETURN(access, AccessList::Parse(settings.allow));
  }
  std::unique_ptr<Daemon> daemon(new Daemon(settings, log));
  if (settings.listen_fd >= 0) {
    HEADRACE_ASSIGN_OR_RETURN(daemon->socket_, ListeningSocket::Adopt(settings.listen_fd));
  } else {
    HEADRACE_ASSIGN_OR_RETURN(daemon->socket_, ListeningSocket::Bind(settings.socket, settings.socket_mode));
  }

  PipelineOptions options;
  options.decode_threads = settings.threads;
  options.niceness = settings.niceness;
  options.numa_nodes = ReadNumaNodes();
  options.host_memory_bytes = settings.host_memory;
  options.verify = settings.verify;
  options.read_ahead_batches = settings.read_ahead;
  LimitIsa(settings.isa);
  options.open_gpu = OpenCudaGpu;
  options.device_memory_bytes = settings.device_memory;
  options.page_cache_map_bytes = settings.page_cache_map;
  options.on_gpu_lost = [log](const std::string& why) {
    log->Error("the GPU is lost, the daemon ends: " + why);
    std::quick_exit(EXIT_FAILURE);  // without destructors: they would wait for the GPU
  };
  if (settings.private_daemon) unsetenv("CUDA_VISIBLE_DEVICES");  // of the rank that started it; it serves the other ones' GPUs too
  if (settings.sm_percentage > 0) {
    setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", absl::StrCat(settings.sm_percentage).c_str(), 1);
  }
  options.on_bad_sample = [log](const std::string& message) { log->Warn("bad sample: " + message); };
  daemon->service_ = std::make_unique<Service>(std::move(roots), make_pipeline(options));

  EventLoopOptions loop;
  loop.max_connections = settings.max_connections;
  loop.frame_timeout_ms = settings.frame_timeout_ms;
  loop.cold_threads = settings.cold_threads;
  loop.grace_ms = settings.private_daemon ? settings.grace_ms : -1;
  daemon->loop_ = std::make_unique<EventLoop>(loop, std::move(access), daemon->service_.get(), log);
  HEADRACE_RETURN_IF_ERROR(daemon->StartFronts(signal_fd));
  return daemon;
}

absl::Status Daemon::StartFronts(int signal_fd) {
  loop_->ServeHandOver(socket_.fd());
  if (signal_fd >= 0) loop_->WatchSignals(signal_fd, [this](int signal) { OnSignal(signal); });
#ifdef HEADRACE_GRPC
  if (settings_.grpc) {
    HEADRACE_ASSIGN_OR_RETURN(rpc_socket_,
                              ListeningSocket::Bind(settings_.socket + ".grpc", settings_.socket_mode));
    rpc_ = std::make_unique<RpcServer>(service_.get(), [this](const std::string& reason) { Stop(reason); });
    loop_->Accept(rpc_socket_.fd(),
                  [this](UniqueFd socket, const Peer& peer) { rpc_->Serve(std::move(socket), peer); });
  }
#endif
  if (settings_.metrics_port != 0) {
    HEADRACE_ASSIGN_OR_RETURN(
        metrics_, MetricsServer::Start(settings_.metrics_address, settings_.metrics_port, service_.get()));
  }
  return absl::OkStatus();
}

void Daemon::OnSignal(int signal) {
  if (signal == SIGHUP) {
    if (reload_) reload_();
    return;
  }
  Stop(absl::StrCat("the daemon was told to stop (", signal == SIGTERM ? "SIGTERM" : "SIGINT", ")"));
}

std::string Daemon::Run() {
  const std::string reason = loop_->Run();
  socket_.RemoveFile();
  rpc_socket_.RemoveFile();
  return reason;
}

void Daemon::Stop(const std::string& reason) { loop_->Stop(reason); }

}  // namespace headrace
