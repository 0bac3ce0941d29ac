#include "tests/support/embedded_daemon.h"

#include <cstdio>
#include <cstdlib>

namespace headrace::testing {
namespace {

template <typename T>
T Require(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "embedded daemon: %s\n", value.status().ToString().c_str());
  std::abort();
}

Settings ForRoot(const std::string& root) {
  Settings settings;
  settings.data = {root};
  return settings;
}

}  // namespace

EmbeddedDaemon::EmbeddedDaemon(const std::string& root, const Daemon::MakePipeline& make_pipeline)
    : EmbeddedDaemon(ForRoot(root), make_pipeline) {}

EmbeddedDaemon::EmbeddedDaemon(Settings settings, const Daemon::MakePipeline& make_pipeline) : settings_(std::move(settings)) {
  if (settings_.socket.empty()) settings_.socket = folder_.File("headrace.sock");
  if (settings_.threads == 0) settings_.threads = 2;
  if (settings_.host_memory == 0) settings_.host_memory = uint64_t{256} << 20;
  if (const absl::Status status = CompleteSettings(&settings_); !status.ok()) Require<int>(status);
  log_ = Require(Log::Open(folder_.File("log"), LogLevel::kDebug));
  daemon_ = Require(Daemon::Start(settings_, -1, log_.get(), make_pipeline));
  thread_ = std::thread([this] { reason_ = daemon_->Run(); });
}

EmbeddedDaemon::~EmbeddedDaemon() { Stop(); }

std::string EmbeddedDaemon::Stop(const std::string& reason) {
  if (daemon_ != nullptr) daemon_->Stop(reason);
  return Wait();
}

std::string EmbeddedDaemon::Wait() {
  if (thread_.joinable()) thread_.join();
  daemon_ = nullptr;
  return reason_;
}

std::string EmbeddedDaemon::log() const { return folder_.Read("log"); }

}  // namespace headrace::testing
