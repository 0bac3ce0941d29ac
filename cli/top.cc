#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/commands.h"
#include "server/rpc/rpc_client.h"
#include "server/settings.h"
#include "server/stats_json.h"

namespace headrace {
namespace {

constexpr int kTimeoutMs = 5000;
// With --once there is no earlier look to compare with: it takes one this much earlier.
constexpr std::chrono::milliseconds kOnceInterval(500);

struct TopOptions {
  std::string socket;
  bool once = false, json = false;
  double interval_s = 1;
};

double PerSecond(uint64_t now, uint64_t before, double seconds) {
  return now >= before && seconds > 0 ? static_cast<double>(now - before) / seconds : 0;
}

std::string Mebibytes(uint64_t bytes) { return absl::StrCat((bytes + (1 << 19)) >> 20, " MiB"); }

std::string FormatTable(const ServiceStats& before, const ServiceStats& now) {
  const double seconds = now.uptime_s - before.uptime_s;
  const PipelineStats& p = now.pipeline;
  std::string text = absl::StrFormat(
      "headrace %s  pid %d  up %.0f s  %s\n%.0f samples/s  %.2f of %d decode threads busy, %d in use  %.2f CPU  memory %s of %s  "
      "read %.1f MB/s  bad %d\n\n",
      now.version, now.pid, now.uptime_s, p.simd_target, PerSecond(p.samples, before.pipeline.samples, seconds),
      PerSecond(p.decode_ns, before.pipeline.decode_ns, seconds) * 1e-9, p.decode_threads, p.threads_in_use,
      seconds > 0 ? (now.cpu_seconds - before.cpu_seconds) / seconds : 0, Mebibytes(p.host_memory_used),
      Mebibytes(p.host_memory_bytes), PerSecond(p.bytes_read, before.pipeline.bytes_read, seconds) * 1e-6,
      p.bad_samples);
  std::map<uint64_t, uint64_t> earlier;  // session → samples
  for (const ServiceStats::Session& session : before.sessions) earlier[session.stats.id] = session.stats.samples;
  absl::StrAppendFormat(&text, "%10s %8s %9s %10s %7s %10s %6s %12s %6s  %s\n", "SESSION", "PID", "RANK", "SAMPLES/S",
                        "READY", "MEMORY", "EPOCH", "POSITION", "BAD", "DATASET");
  for (const ServiceStats::Session& session : now.sessions) {
    const SessionStats& s = session.stats;
    const auto found = earlier.find(s.id);
    const double rate = found == earlier.end() ? 0 : PerSecond(s.samples, found->second, seconds);
    absl::StrAppendFormat(&text, "%10d %8d %9s %10.0f %7s %10s %6d %12d %6d  %s\n", s.id, session.pid,
                          absl::StrCat(s.rank, "/", s.world_size), rate, absl::StrCat(s.slots_ready, "/", s.slots),
                          Mebibytes(s.ring_bytes), s.cursor.epoch, s.cursor.position, s.bad_samples, s.dataset);
  }
  if (now.sessions.empty()) absl::StrAppend(&text, "no sessions\n");
  return text;
}

absl::Status Top(const TopOptions& options) {
  const std::string socket = options.socket.empty() ? DefaultSocketPath() : options.socket;
  auto connected = RpcClient::Connect(socket);
  if (absl::IsNotFound(connected.status()) || absl::IsUnavailable(connected.status())) {
    return Annotate(absl::NotFoundError("start `headrace serve`, or name its socket with --socket (private daemons cannot be watched)"),
                    absl::StrCat("no daemon listens at ", socket));
  }
  HEADRACE_ASSIGN_OR_RETURN(const std::unique_ptr<RpcClient> client, std::move(connected));
  HEADRACE_ASSIGN_OR_RETURN(ServiceStats before, client->Stats(kTimeoutMs));
  const bool live = isatty(STDOUT_FILENO) && !options.once && !options.json;
  for (;;) {
    ServiceStats now = before;
    if (!options.json || !options.once) {
      std::this_thread::sleep_for(options.once ? std::chrono::duration<double>(kOnceInterval)
                                               : std::chrono::duration<double>(options.interval_s));
      HEADRACE_ASSIGN_OR_RETURN(now, client->Stats(kTimeoutMs));
    }
    const std::string text = options.json ? FormatStatsJson(now) + "\n" : FormatTable(before, now);
    std::printf("%s%s", live ? "\x1b[H\x1b[J" : "", text.c_str());
    if (std::fflush(stdout) != 0) return absl::OkStatus();  // who read it has gone
    if (options.once) return absl::OkStatus();
    before = std::move(now);
  }
}

constexpr char kExamples[] = R"(
Examples:
  headrace top                     live, until Ctrl-C
  headrace top --once              one table
  headrace top --json | jq .       every second an object for other programs)";

}  // namespace

void AddTop(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<TopOptions>();
  CLI::App* command = app.add_subcommand("top", "Show what a node's daemon does");
  command->add_option("--socket", options->socket, "The daemon's socket [default: as serve]");
  command->add_flag("--once", options->once, "Print one table and end");
  command->add_flag("--json", options->json, "Print the statistics of docs/protocol.md, one object per line");
  command->add_option("--interval", options->interval_s, "Seconds between two looks")->check(CLI::Range(0.1, 3600.0));
  command->footer(kExamples);
  command->callback([options, exit_code] {
    const absl::Status status = Top(*options);
    if (status.ok()) return;
    std::fprintf(stderr, "headrace top: %s\n", std::string(status.message()).c_str());
    *exit_code = kExitFailed;
  });
}

}  // namespace headrace
