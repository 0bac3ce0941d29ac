#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/commands.h"
#include "core/base/file.h"
#include "server/daemon.h"
#include "server/settings.h"

namespace headrace {
namespace {

// A private daemon writes why it cannot start here, or closes it when it serves (docs/operations.md).
constexpr int kStartPipe = 4;
// A thread may sit in a read of a disk that does not answer; whoever told the daemon to stop does not wait for it.
constexpr std::chrono::milliseconds kStopTime(800);

struct ServeOptions {
  std::map<const Setting*, std::vector<std::string>> values;  // what the command line names
  std::string config;
  bool print_settings = false;
};

// Where the error of a start goes: standard error, or the pipe of whoever starts a private daemon.
class StartReport {
 public:
  explicit StartReport(bool is_private) {
    if (is_private && fcntl(kStartPipe, F_SETFD, FD_CLOEXEC) == 0) pipe_ = UniqueFd(kStartPipe);
  }
  void Ready() { pipe_ = UniqueFd(); }
  int Failed(const absl::Status& status) {
    const std::string message(status.message());
    if (pipe_.valid()) {
      (void)WriteAll(pipe_.get(), message.data(), message.size(), "start pipe").ok();
    } else {
      std::fprintf(stderr, "headrace serve: %s\n", message.c_str());
    }
    return absl::IsInvalidArgument(status) ? kExitUsage : kExitFailed;
  }

 private:
  UniqueFd pipe_;
};

absl::StatusOr<Settings> ReadSettings(const ServeOptions& options) {
  Settings settings;
  if (!options.config.empty()) {
    HEADRACE_RETURN_IF_ERROR(LoadConfigFile(options.config, /*only_changeable=*/false, &settings));
  }
  for (const auto& [setting, values] : options.values) {
    if (!values.empty()) HEADRACE_RETURN_IF_ERROR(setting->set(values, &settings));
  }
  HEADRACE_RETURN_IF_ERROR(CompleteSettings(&settings));
  return settings;
}

// The second process goes on: not a child of whoever started it, in a session of its own. The first one never returns.
absl::Status Detach() {
  // First here, so that the second is at no moment in the process group that a launcher kills.
  if (setsid() < 0 && errno != EPERM) return ErrnoStatus(errno, "setsid");
  const pid_t child = fork();
  if (child < 0) return ErrnoStatus(errno, "fork");
  if (child > 0) _exit(0);
  if (setsid() < 0) return ErrnoStatus(errno, "setsid");
  return absl::OkStatus();
}

// Blocked before any thread starts, so that only the event loop sees them.
absl::StatusOr<UniqueFd> TakeSignals() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes holds for memfds too: a ring above it is an error
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  if (sigprocmask(SIG_BLOCK, &signals, nullptr) != 0) return ErrnoStatus(errno, "sigprocmask");
  UniqueFd fd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return ErrnoStatus(errno, "signalfd");
  return fd;
}

// sd_notify: tells systemd that clients can connect. Nothing to do without systemd.
void NotifySystemd(const char* state) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path == nullptr || std::strlen(path) >= sizeof(address.sun_path)) return;
  std::strcpy(address.sun_path, path);
  if (path[0] == '@') address.sun_path[0] = '\0';
  const UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const socklen_t length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(path));
  (void)sendto(fd.get(), state, std::strlen(state), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address), length);
}

void Reload(const std::string& config, Settings settings, Log* log) {
  if (config.empty()) return log->Warn("SIGHUP: there is no configuration file to read again");
  Settings in_file = settings;
  absl::Status status = LoadConfigFile(config, /*only_changeable=*/true, &settings);
  if (status.ok()) status = LoadConfigFile(config, /*only_changeable=*/false, &in_file);
  if (!status.ok()) return log->Error(absl::StrCat("SIGHUP: ", std::string(status.message()), "; nothing was changed"));
  log->SetLevel(settings.log_level);
  std::vector<std::string> later;
  for (const Setting& setting : SettingsTable()) {
    if (setting.get(in_file) != setting.get(settings)) later.push_back(setting.name);
  }
  log->Info(absl::StrCat("SIGHUP: read ", config, " again",
                         later.empty() ? "" : absl::StrCat("; changes at the next start only: ", absl::StrJoin(later, ", "))));
}

int Serve(const ServeOptions& options) {
  bool is_private = false;
  for (const auto& [setting, values] : options.values) {
    if (setting->name == "private" && values == std::vector<std::string>{"true"}) is_private = true;
  }
  StartReport report(is_private);
  const absl::StatusOr<Settings> settings = ReadSettings(options);
  if (!settings.ok()) return report.Failed(settings.status());
  if (is_private) {
    if (const absl::Status status = Detach(); !status.ok()) return report.Failed(status);
  }
  prctl(PR_SET_NAME, "headrace");
  const absl::StatusOr<UniqueFd> signals = TakeSignals();
  if (!signals.ok()) return report.Failed(signals.status());
  const absl::StatusOr<std::unique_ptr<Log>> log = Log::Open(settings->log_file, settings->log_level);
  if (!log.ok()) return report.Failed(log.status());

  absl::StatusOr<std::unique_ptr<Daemon>> daemon = Daemon::Start(*settings, signals->get(), log->get());
  if (!daemon.ok()) return report.Failed(daemon.status());
  (*log)->Info(absl::StrCat("headrace ", HEADRACE_VERSION, " serves (pid ", getpid(), ")"));
  for (const auto line : absl::StrSplit(FormatSettings(*settings), '\n', absl::SkipEmpty())) {
    (*log)->Info(absl::StrCat("  ", line));
  }
  (*daemon)->SetReload([&] { Reload(options.config, *settings, log->get()); });
  report.Ready();
  NotifySystemd("READY=1");

  const std::string reason = (*daemon)->Run();
  NotifySystemd("STOPPING=1");
  (*log)->Info("stops: " + reason);
  std::thread([] {
    std::this_thread::sleep_for(kStopTime);
    _exit(0);
  }).detach();
  daemon->reset();
  return 0;
}

void AddOption(const Setting& setting, CLI::App* command, ServeOptions* options) {
  const std::string help = absl::StrCat(setting.help, " [", setting.range, "; default: ", setting.default_text, "]");
  std::vector<std::string>* values = &options->values[&setting];
  CLI::Option* option = nullptr;
  if (setting.is_flag) {
    const std::string name = setting.option().substr(2);
    option = command->add_flag_function(
        absl::StrCat("--", name, ",!--no-", name),
        [values](int64_t count) { *values = {count > 0 ? "true" : "false"}; }, help);
  } else {
    option = command->add_option(setting.option(), *values, help);
    if (setting.is_list) {
      option->expected(1, CLI::detail::expected_max_vector_size);
    } else {
      option->expected(1);
    }
  }
  if (!setting.in_file) option->group("");
}

constexpr char kExamples[] = R"(
Examples:
  headrace serve --data /data                             for this user's trainers
  headrace serve --data /data --allow @ml --threads 32    for a group's, with 32 decode threads
  headrace serve --config /etc/headrace.toml              settings from a file (deploy/headrace.toml is one))";

}  // namespace

void AddServe(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command = app.add_subcommand("serve", "Serve datasets to the trainers of this machine");
  for (const Setting& setting : SettingsTable()) AddOption(setting, command, options.get());
  command->add_option("--config", options->config, "A TOML file with these settings; the command line counts more");
  command->add_flag("--print-settings", options->print_settings, "Print all settings as a Markdown table and end");
  command->footer(kExamples);
  command->callback([options, exit_code] {
    if (options->print_settings) {
      std::fputs(FormatSettingsTable().c_str(), stdout);
      return;
    }
    *exit_code = Serve(*options);
  });
}

}  // namespace headrace
