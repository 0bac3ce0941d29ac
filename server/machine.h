// What this process may use of the machine it runs on.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace headrace {

struct MachineLimits {
  int processors = 1;         // by affinity, and at most the cgroup's CPU quota rounded up
  int all_processors = 1;     // the same without the affinity
  uint64_t ram_bytes = 0;   
  uint64_t memory_bytes = 0;  // the smaller of ram_bytes and the limits of the cgroup and its parents (v1 and v2)
};

// Reads /proc and /sys/fs/cgroup; what is missing there does not limit.
MachineLimits ReadMachineLimits();

// Lets every thread of this process also run where process `pid` may. Nothing happens if that process is gone or may run
// nowhere else.
void JoinAffinity(pid_t pid);

}  // namespace headrace
