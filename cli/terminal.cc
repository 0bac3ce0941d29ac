#include "cli/terminal.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "core/base/unique_fd.h"

namespace headrace {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBarTickMs = 150;
constexpr double kLineSeconds = 5;

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

int TerminalColumns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

std::string Format(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

// Turns views into text. The rate is that of the running phase.
class ProgressPrinter {
 public:
  ProgressPrinter() : terminal_(::isatty(STDERR_FILENO) == 1) {}

  void Tick(const ProgressView& view) {
    const auto now = Clock::now();
    if (view.phase != phase_) {
      phase_ = view.phase;
      phase_began_ = now;
      first_done_ = view.done;
      first_bytes_ = view.bytes;
      if (!terminal_) last_line_ = now;
    }
    if (terminal_) {
      std::string line = Describe(view, Seconds(now - phase_began_), /*bar=*/true);
      const auto columns = static_cast<size_t>(TerminalColumns() - 1);
      if (line.size() > columns) line.resize(columns);
      std::cerr << "\r\x1b[K" << line << std::flush;
      bar_shown_ = true;
    } else if (Seconds(now - last_line_) >= kLineSeconds) {
      last_line_ = now;
      std::cerr << Describe(view, Seconds(now - phase_began_), /*bar=*/false) << std::endl;
    }
  }

  void End() {
    if (bar_shown_) std::cerr << "\r\x1b[K" << std::flush;
  }

 private:
  std::string Describe(const ProgressView& view, double seconds, bool bar) const {
    std::string line = view.phase;
    const double rate = seconds > 0.2 ? static_cast<double>(view.done - first_done_) / seconds : 0;
    const bool in_bytes = view.unit == "bytes";
    const std::string done = in_bytes ? HumanBytes(view.done) : Grouped(view.done);
    if (view.total > 0) {
      const double part = std::min(1.0, static_cast<double>(view.done) / static_cast<double>(view.total));
      if (bar) {
        constexpr int kWidth = 20;
        const int filled = static_cast<int>(part * kWidth);
        absl::StrAppend(&line, " [", std::string(static_cast<size_t>(filled), '#'),
                        std::string(static_cast<size_t>(kWidth - filled), '.'), "]");
      }
      absl::StrAppend(&line, " ", Format("%.0f %%", part * 100), "  ", done, " of ",
                      in_bytes ? HumanBytes(view.total) : absl::StrCat(Grouped(view.total), " ", view.unit));
    } else {
      absl::StrAppend(&line, "  ", done, in_bytes ? "" : absl::StrCat(" ", view.unit));
    }
    if (rate > 0) {
      absl::StrAppend(&line, "  ", in_bytes ? HumanBytes(static_cast<uint64_t>(rate)) : Grouped(std::llround(rate)),
                      "/s");
      if (view.bytes > first_bytes_) {
        const double bytes = static_cast<double>(view.bytes - first_bytes_) / seconds;
        absl::StrAppend(&line, "  ", HumanBytes(static_cast<uint64_t>(bytes)), "/s");
      }
      if (view.total >= view.done && view.total > 0) {
        absl::StrAppend(&line, "  ", HumanSeconds(static_cast<double>(view.total - view.done) / rate), " left");
      }
    }
    if (!view.note.empty()) absl::StrAppend(&line, "  ", view.note);
    return line;
  }

  const bool terminal_;
  bool bar_shown_ = false;
  std::string phase_;
  Clock::time_point phase_began_, last_line_ = Clock::now();
  uint64_t first_done_ = 0, first_bytes_ = 0;
};

}  // namespace

std::string Grouped(uint64_t n) {
  std::string digits = std::to_string(n);
  for (size_t i = digits.size(); i > 3;) {
    i -= 3;
    digits.insert(i, 1, ',');
  }
  return digits;
}

std::string HumanBytes(uint64_t bytes) {
  if (bytes < 1000) return absl::StrCat(bytes, " bytes");
  static constexpr const char* kUnits[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes) / 1000;
  size_t unit = 0;
  while (value >= 999.5 && unit < 5) {
    value /= 1000;
    ++unit;
  }
  return absl::StrCat(Format(value < 9.995 ? "%.2f" : value < 99.95 ? "%.1f" : "%.0f", value), " ", kUnits[unit]);
}

std::string HumanSeconds(double seconds) {
  const auto total = static_cast<uint64_t>(std::llround(std::max(0.0, seconds)));
  if (total >= 3600) return absl::StrCat(total / 3600, " h ", total / 60 % 60, " min");
  if (total >= 60) return absl::StrCat(total / 60, " min ", total % 60, " s");
  return absl::StrCat(total, " s");
}

std::string Printable(const std::string& text) {
  std::string out = text;
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return out;
}

void PrintError(const absl::Status& status) {
  std::cerr << "headrace: " << Printable(std::string(status.message())) << std::endl;
}

void RunWithProgress(const std::function<void()>& work, const std::function<ProgressView()>& view,
                     std::atomic<bool>* stop, bool quiet) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // inherited by the threads that follow
  const UniqueFd signal_fd(::signalfd(-1, &signals, SFD_CLOEXEC));
  const UniqueFd done_fd(::eventfd(0, EFD_CLOEXEC));
  std::thread worker([&] {
    work();
    const uint64_t one = 1;
    (void)!::write(done_fd.get(), &one, sizeof one);
  });
  ProgressPrinter printer;
  pollfd waits[] = {{done_fd.get(), POLLIN, 0}, {signal_fd.get(), POLLIN, 0}};
  while (true) {
    const int ready = ::poll(waits, 2, kBarTickMs);
    if (ready > 0 && waits[0].revents != 0) break;
    if (ready > 0 && waits[1].revents != 0) {
      signalfd_siginfo info;
      (void)!::read(signal_fd.get(), &info, sizeof info);
      if (stop->exchange(true)) ::_exit(128 + static_cast<int>(info.ssi_signo));
    }
    if (!quiet) printer.Tick(view());
  }
  worker.join();
  printer.End();
}

}  // namespace headrace
