// Errors and deadlines inside the client, which has no Abseil: a code of headrace.h and a message.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "client/headrace.h"

namespace headrace::client {

struct [[nodiscard]] Status {
  int code = HR_OK;
  std::string message;
  bool ok() const { return code == HR_OK; }
};

inline Status Error(int code, std::string message) { return {code, std::move(message)}; }

inline int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1000000000} + now.tv_nsec;
}

// The end of a call, and when the call began, for messages.
class Deadline {
 public:
  static Deadline AfterMs(int64_t timeout_ms) {
    const int64_t now = NowNs();
    return Deadline(now, now + timeout_ms * 1000000);
  }
  // The earlier of this deadline and `ms` from now.
  Deadline NotAfterMs(int64_t ms) const {
    return Deadline(start_ns_, std::min(end_ns_, NowNs() + ms * 1000000));
  }
  int64_t end_ns() const { return end_ns_; }
  int64_t remaining_ns() const { return std::max<int64_t>(0, end_ns_ - NowNs()); }
  bool passed() const { return NowNs() >= end_ns_; }
  int64_t timeout_ms() const { return (end_ns_ - start_ns_) / 1000000; }

 private:
  Deadline(int64_t start_ns, int64_t end_ns) : start_ns_(start_ns), end_ns_(end_ns) {}
  int64_t start_ns_, end_ns_;
};

}  // namespace headrace::client
