// fake_daemon --socket ADDRESS [options], or as a private daemon: fake_daemon serve --private --listen-fd 3 … [options].
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>

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

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "serve") == 0) ++argv, --argc;
  headrace::fake::FakeDaemonOptions options;
  std::string socket, start_error;
  bool is_private = false;
  int listen_fd = -1, exit_status = -1;
  CLI::App app;
  app.add_option("--socket", socket);
  app.add_flag("--private", is_private);
  app.add_option("--listen-fd", listen_fd);
  app.add_option("--grace-ms", options.grace_ms);
  app.add_option("--start-error", start_error);
  app.add_option("--exit-status", exit_status);
  app.add_option("--size", options.size);
  app.add_option("--hash", options.hash);
  app.add_option("--protocol-version", options.protocol_version);
  app.add_option("--order-version", options.order_version);
  app.add_option("--pixel-version", options.pixel_version);
  app.add_option("--delay-us", options.delay_us);
  app.add_option("--start-delay-ms", options.start_delay_ms);
  app.add_option("--die-after", options.die_after);
  app.add_option("--stall-after", options.stall_after);
  app.add_option("--stop-after", options.stop_after);
  app.add_option("--bad-at", options.bad_at);
  app.add_option("--exhausted", options.exhausted);
  app.add_option("--silent", options.silent);
  app.add_flag("--die-at-seek", options.die_at_seek);
  app.add_option("--refuse", options.refuse);
  app.add_option("--hostile", options.hostile);
  CLI11_PARSE(app, argc, argv);
  if (exit_status >= 0) return exit_status;
  if (is_private) BecomePrivate(start_error);
  if (listen_fd < 0) listen_fd = Listen(socket);
  if (listen_fd < 0) return 1;
  return headrace::fake::ServeFakeDaemon(listen_fd, options);
}
