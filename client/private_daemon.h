// Starting a private daemon (docs/operations.md, "Private daemons").
#pragma once

#include <string>
#include <vector>

#include "client/process.h"
#include "client/status.h"

namespace headrace::client {

struct PrivateDaemonOptions {
  std::string executable;  // empty: no private daemon
  std::vector<std::string> arguments;
  int grace_ms = 0;
};

// Starts `executable serve --private …` with `listener` as descriptor 3 and a pipe for its words as
// descriptor 4, no other descriptor, default signal handlers and an empty signal mask. It inherits
// this thread's CPU affinity. posix_spawn: no fork handler runs and nothing of this process's
// memory is copied. Waits for the first process only, which forks and exits at once. `*words` is
// the pipe's reading end: text, then end of file. UNAVAILABLE: it could not be executed or failed
// at once.
Status StartPrivateDaemon(const PrivateDaemonOptions& options, Descriptor listener,
                          const Deadline& deadline, Descriptor* words);

// What a daemon that failed wrote into `words`: read to the end of file, but for at most
// `deadline`.
std::string ReadWords(int words, const Deadline& deadline);

}  // namespace headrace::client
