// Time in nanoseconds.
#pragma once

#include <time.h>

#include <cstdint>

namespace headrace {

inline int64_t ClockNs(clockid_t clock) {
  timespec time;
  ::clock_gettime(clock, &time);
  return int64_t{1'000'000'000} * time.tv_sec + time.tv_nsec;
}

inline int64_t SteadyNs() { return ClockNs(CLOCK_MONOTONIC); }
// CPU time of the calling thread.
inline int64_t ThreadNs() { return ClockNs(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace headrace
