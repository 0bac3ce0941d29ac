// A daemon of docs/protocol.md without data: synthetic batches, and every fault that a client must
// survive. One thread.
//
// Batches: fields `image` (float32 [B, 3, 64, 64]), `label` (int64), `name` (text), `index`
// (int64). Sample = position (no shuffling), label = 10 · sample, name = "s<sample>", every pixel =
// PixelOf(epoch, sample). An epoch has `size` samples.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/protocol.h"

namespace headrace::fake {

inline constexpr int64_t kChannels = 3, kSide = 64;
inline constexpr int64_t kImageElements = kChannels * kSide * kSide;

inline float PixelOf(uint64_t epoch, uint64_t sample) {
  return static_cast<float>((epoch * 7919 + sample) % 1000003);
}

struct FakeDaemonOptions {
  uint64_t size = 1000;
  std::string hash = "00000000000000000000000000000000";
  uint32_t protocol_version = HR_PROTOCOL_VERSION, order_version = 1, pixel_version = 1;
  int64_t delay_us = 0;        // per batch
  int64_t start_delay_ms = 0;  // before the first connection is accepted
  int64_t die_after = -1;      // batches of all sessions: then kill -9 of itself
  int64_t stall_after = -1;    // then fill nothing more
  int64_t stop_after = -1;     // then stop as on SIGTERM, with a reason
  int64_t bad_at = -1;         // the batch that starts at this position is a bad one
  int64_t exhausted = 0;       // so many OPENs are answered RESOURCE_EXHAUSTED
  uint32_t first_ticket = 1;
  uint32_t silent = 0;  // this message type is never answered
  bool die_at_seek = false;
  std::string deaths;  // a file: each DESCRIBE takes a byte of it and kills the daemon, while there is one
  bool on_gpu = false;  // `image` lies in GPU memory, which nobody can ask for
  std::string refuse;   // refuse every connection with this message
  std::string hostile;  // see HostileOpen and Fill in fake_daemon.cc
  int grace_ms = -1;    // private: end so long after the last connection
};

// Serves on a listening socket until the grace time ends or it is killed. Returns the exit status.
int ServeFakeDaemon(int listen_fd, const FakeDaemonOptions& options);

}  // namespace headrace::fake
