// What the commands have in common on a terminal: progress, Ctrl-C, numbers for people.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "core/base/status.h"

namespace headrace {

// "12,345,678".
std::string Grouped(uint64_t n);
// "1.21 GB", "812 bytes": decimal units.
std::string HumanBytes(uint64_t bytes);
// "3 h 12 min", "4 min 5 s", "17 s".
std::string HumanSeconds(double seconds);

// `text` without bytes that would steer the terminal: control characters become "?".
std::string Printable(const std::string& text);

// "headrace: MESSAGE" on the error stream.
void PrintError(const absl::Status& status);

// One look at a work's progress.
struct ProgressView {
  std::string phase;           // "packing"
  std::string unit = "files";
  uint64_t done = 0, total = 0;  // of `unit`; total 0: not known
  uint64_t bytes = 0;            // 0: not shown
  std::string note;              // "3 rejected", may be empty
};

// Runs `work` on a thread of its own and shows `view()` on the error stream meanwhile: a bar that moves on a terminal, else a
// line every five seconds; nothing if `quiet`. SIGINT or SIGTERM sets `stop`, a second one ends the process at once.
// Returns when `work` has returned. Blocks those signals in the calling thread.
void RunWithProgress(const std::function<void()>& work, const std::function<ProgressView()>& view,
                     std::atomic<bool>* stop, bool quiet);

}  // namespace headrace
