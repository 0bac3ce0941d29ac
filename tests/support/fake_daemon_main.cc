// fake_daemon --socket ADDRESS [options], or as a private daemon: fake_daemon serve --private
// --listen-fd 3 … [options].
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>

#include "tests/support/fake_daemon.h"

namespace {

int Listen(const std::string& address) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un at = {};
  at.sun_family = AF_UNIX;
  memcpy(at.sun_path, address.data(), std::min(address.size(), sizeof at.sun_path - 1));
  socklen_t length = sizeof at;
  if (address[0] == '@') {
    at.sun_path[0] = '\0';
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
  }
  if (bind(fd, reinterpret_cast<sockaddr*>(&at), length) != 0 || listen(fd, 128) != 0) {
    perror(address.c_str());
    return -1;
  }
  return fd;
}

// docs/operations.md: a session of its own, forks, tells its start on descriptor 4.
void BecomePrivate(const std::string& start_error) {
  setsid();
  if (fork() != 0) _exit(0);
  if (!start_error.empty()) {
    (void)!write(4, start_error.data(), start_error.size());
    _exit(1);
  }
  close(4);
}

using Setters = std::map<std::string, std::function<void(const std::string&)>>;

template <class T>
std::function<void(const std::string&)> Set(T* number) {
  return [number](const std::string& text) { *number = static_cast<T>(std::stoll(text)); };
}
std::function<void(const std::string&)> Set(std::string* to) {
  return [to](const std::string& text) { *to = text; };
}

Setters OptionsOf(headrace::fake::FakeDaemonOptions* options) {
  return {{"--grace-ms", Set(&options->grace_ms)},
          {"--size", Set(&options->size)},
          {"--hash", Set(&options->hash)},
          {"--protocol-version", Set(&options->protocol_version)},
          {"--order-version", Set(&options->order_version)},
          {"--pixel-version", Set(&options->pixel_version)},
          {"--delay-us", Set(&options->delay_us)},
          {"--start-delay-ms", Set(&options->start_delay_ms)},
          {"--die-after", Set(&options->die_after)},
          {"--stall-after", Set(&options->stall_after)},
          {"--stop-after", Set(&options->stop_after)},
          {"--bad-at", Set(&options->bad_at)},
          {"--exhausted", Set(&options->exhausted)},
          {"--first-ticket", Set(&options->first_ticket)},
          {"--silent", Set(&options->silent)},
          {"--deaths", Set(&options->deaths)},
          {"--refuse", Set(&options->refuse)},
          {"--hostile", Set(&options->hostile)}};
}

}  // namespace

int main(int argc, char** argv) {
  headrace::fake::FakeDaemonOptions options;
  std::string socket, start_error;
  bool is_private = false;
  int listen_fd = -1, exit_status = -1;
  Setters setters = OptionsOf(&options);
  setters["--socket"] = Set(&socket);
  setters["--listen-fd"] = Set(&listen_fd);
  setters["--start-error"] = Set(&start_error);
  setters["--exit-status"] = Set(&exit_status);
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "serve") continue;
    if (word == "--private") {
      is_private = true;
    } else if (word == "--die-at-seek") {
      options.die_at_seek = true;
    } else if (word == "--on-gpu") {
      options.on_gpu = true;
    } else if (const auto found = setters.find(word); found != setters.end() && i + 1 < argc) {
      found->second(argv[++i]);
    } else {
      fprintf(stderr, "fake_daemon: unknown option %s\n", word.c_str());
      return 2;
    }
  }
  if (exit_status >= 0) return exit_status;
  if (is_private) BecomePrivate(start_error);
  if (listen_fd < 0) listen_fd = Listen(socket);
  if (listen_fd < 0) return 1;
  return headrace::fake::ServeFakeDaemon(listen_fd, options);
}
