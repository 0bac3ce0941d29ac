#include "tests/support/fork_server.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace headrace {
namespace {

constexpr size_t kMaxArgument = 4096;

void Require(bool condition, const char* what) {
  if (condition) return;
  std::perror(what);
  std::abort();
}

// A child ends with its parent; those that it forks itself do not.
void EndWith(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
}

// Answers each request, a Work and its argument, with the child's pid and later with the state in which it ended.
[[noreturn]] void Serve(int socket) {
  ForkServer::Work work;
  char request[sizeof work + kMaxArgument];
  for (ssize_t n; (n = recv(socket, request, sizeof request, 0)) > 0;) {
    const pid_t server = getpid(), child = fork();
    if (child == 0) {
      EndWith(server);
      close(socket);
      std::memcpy(&work, request, sizeof work);
      _exit(work(std::string(request + sizeof work, request + n)));
    }
    int state = 0;
    if (send(socket, &child, sizeof child, MSG_NOSIGNAL) < 0 || waitpid(child, &state, 0) != child) break;
    if (send(socket, &state, sizeof state, MSG_NOSIGNAL) < 0) break;
  }
  _exit(0);
}

}  // namespace

ForkServer::ForkServer() {
  int ends[2];
  Require(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
  const pid_t test = getpid();
  server_ = fork();
  Require(server_ >= 0, "fork");
  if (server_ == 0) {
    EndWith(test);
    close(ends[0]);
    Serve(ends[1]);
  }
  close(ends[1]);
  socket_ = ends[0];
}

ForkServer::~ForkServer() {
  close(socket_);
  kill(server_, SIGKILL);
  waitpid(server_, nullptr, 0);
}

pid_t ForkServer::Start(Work work, const std::string& argument) {
  std::string request(reinterpret_cast<const char*>(&work), sizeof work);
  Require(argument.size() <= kMaxArgument, "a long argument");
  request += argument;
  pid_t child = -1;
  Require(send(socket_, request.data(), request.size(), MSG_NOSIGNAL) > 0, "fork server");
  Require(recv(socket_, &child, sizeof child, 0) == sizeof child && child > 0, "fork server");
  return child;
}

int ForkServer::Wait() {
  int state = 0;
  Require(recv(socket_, &state, sizeof state, 0) == sizeof state, "fork server");
  return state;
}

}  // namespace headrace
