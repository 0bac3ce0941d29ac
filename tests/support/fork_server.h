// Forks children for a test that has threads. A lock that another thread holds at a fork, the allocator's for one, is never released
// in the child. So a process forked while the test has one thread does nothing but fork the children.
#pragma once

#include <sys/types.h>

#include <string>

namespace headrace {

class ForkServer {
 public:
  using Work = int (*)(const std::string& argument);

  // To be called before the test's first thread.
  ForkServer();
  // Kills a child that still runs.
  ~ForkServer();
  ForkServer(const ForkServer&) = delete;
  ForkServer& operator=(const ForkServer&) = delete;

  // A child that exits with what `work` returns, once the one before has ended. Returns its pid.
  pid_t Start(Work work, const std::string& argument);
  // How it ended: waitpid's state.
  int Wait();
  int Run(Work work, const std::string& argument) {
    Start(work, argument);
    return Wait();
  }

 private:
  int socket_ = -1;
  pid_t server_ = -1;
};

}  // namespace headrace
