#include "client/private_daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/connection.h"

namespace headrace::client {
namespace {

constexpr int kFirstFreeDescriptor = 10;  // out of the way of 0 … 4, which dup2 fills
constexpr size_t kMaxWordsBytes = 4096;

class SpawnSettings {
 public:
  SpawnSettings(int listener, int words) {
    posix_spawn_file_actions_init(&actions_);
    for (int fd : {0, 1, 2}) {
      // The trainer's own streams would keep a parent that reads them waiting for the daemon's end.
      posix_spawn_file_actions_addopen(&actions_, fd, "/dev/null", fd == 0 ? O_RDONLY : O_WRONLY,
                                       0);
    }
    posix_spawn_file_actions_adddup2(&actions_, listener, 3);
    posix_spawn_file_actions_adddup2(&actions_, words, 4);
    posix_spawn_file_actions_addclosefrom_np(&actions_, 5);
    posix_spawnattr_init(&attributes_);
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  const posix_spawn_file_actions_t* actions() const { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

std::vector<std::string> CommandLine(const PrivateDaemonOptions& options) {
  std::vector<std::string> line = {options.executable,
                                   "serve",
                                   "--private",
                                   "--listen-fd",
                                   "3",
                                   "--grace-ms",
                                   std::to_string(options.grace_ms)};
  line.insert(line.end(), options.arguments.begin(), options.arguments.end());
  return line;
}

// The first process exits as soon as it has forked. Reaps it; somebody else may have done so
// already (ECHILD).
Status ReapFirstProcess(pid_t pid, const std::string& executable, const Deadline& deadline) {
  for (;;) {
    int state = 0;
    const pid_t reaped = waitpid(pid, &state, WNOHANG);
    if (reaped == pid) {
      if (WIFEXITED(state) && WEXITSTATUS(state) == 0) return {};
      const std::string how = WIFSIGNALED(state) ? "signal " + std::to_string(WTERMSIG(state))
                                                 : "status " + std::to_string(WEXITSTATUS(state));
      return Error(HR_UNAVAILABLE, executable + " serve ended with " + how);
    }
    if (reaped < 0 && errno != EINTR) return {};
    if (deadline.passed())
      return Error(HR_DEADLINE_EXCEEDED, executable + " serve does not detach from this process");
    // A signal must not leave a zombie behind: the wait that follows will be interrupted again or
    // not at all.
    const timespec pause = {0, 500000};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace

Status StartPrivateDaemon(const PrivateDaemonOptions& options, Descriptor listener,
                          const Deadline& deadline, Descriptor* words) {
  Descriptor read_end, write_end, high_listener;
  {
    const ForksHeldOff held;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
      return Error(HR_RESOURCE_EXHAUSTED, std::string("pipe: ") + strerror(errno));
    }
    read_end = Descriptor(ends[0], held);
    write_end = Descriptor(fcntl(ends[1], F_DUPFD_CLOEXEC, kFirstFreeDescriptor), held);
    close(ends[1]);
    high_listener = Descriptor(fcntl(listener.get(), F_DUPFD_CLOEXEC, kFirstFreeDescriptor), held);
  }
  if (!write_end.valid() || !high_listener.valid()) {
    return Error(HR_RESOURCE_EXHAUSTED, "no descriptors are left to start a daemon");
  }
  const std::vector<std::string> line = CommandLine(options);
  std::vector<char*> argv;
  for (const std::string& word : line) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const SpawnSettings settings(high_listener.get(), write_end.get());
  pid_t pid = 0;
  const int error =
      posix_spawnp(&pid, argv[0], settings.actions(), settings.attributes(), argv.data(), environ);
  if (error != 0)
    return Error(HR_UNAVAILABLE, "cannot run " + options.executable + ": " + strerror(error));
  write_end.Close();
  Status status = ReapFirstProcess(pid, options.executable, deadline);
  if (status.code == HR_UNAVAILABLE) {
    const std::string said = ReadWords(read_end.get(), deadline.NotAfterMs(200));
    if (!said.empty()) status.message = said;
  }
  if (!status.ok()) return status;
  *words = std::move(read_end);
  return {};
}

std::string ReadWords(int words, const Deadline& deadline) {
  std::string said;
  while (said.size() < kMaxWordsBytes) {
    char part[512];
    const ssize_t n = read(words, part, sizeof part);
    if (n > 0) {
      said.append(part, static_cast<size_t>(n));
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      break;
    } else if (WaitFor(words, POLLIN, deadline).code == HR_DEADLINE_EXCEEDED) {
      break;
    }
  }
  return said;
}

}  // namespace headrace::client
