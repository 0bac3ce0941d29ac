// Everything that can be set about a daemon, in one table. The options of `headrace serve`, the keys of its configuration
// file, the effective configuration it prints and the table in docs/operations.md come from it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/augment/simd_target.h"
#include "core/base/status.h"
#include "core/read/sample_reader.h"

namespace headrace {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

struct Settings {
  std::vector<std::string> data;
  std::string socket;            // "": DefaultSocketPath()
  int socket_mode = -1;          // permission bits; -1: 0600, or 0666 with `allow`
  std::vector<std::string> allow;
  int threads = 0;               // 0: the processors this process may use
  int niceness = 5;
  uint64_t device_memory = uint64_t{1536} << 20;  // bytes, of each GPU
  uint64_t page_cache_map = UINT64_MAX;  // bytes; UINT64_MAX: half of the memory (MachineLimits)
  int sm_percentage = 0;         // 0: all, as far as MPS lets it
  uint64_t host_memory = 0;      // bytes; 0: a quarter of the memory (MachineLimits)
  Verify verify = Verify::kOnce;
  Isa isa = Isa::kBest;
  int read_ahead = 2;            // batches
  int cold_threads = 2;
  int max_connections = 1024;
  int frame_timeout_ms = 10000;
  bool grpc = true;
  int metrics_port = 0;          // 0: off
  std::string metrics_address = "127.0.0.1";
  LogLevel log_level = LogLevel::kInfo;
  std::string log_file;          // "": standard error
  // A private daemon (docs/operations.md).
  bool private_daemon = false;
  int listen_fd = -1;
  int grace_ms = 0;
};

struct Setting {
  std::string name;           // as in the file: lower case with underscores; the option has dashes
  std::string unit;           // "bytes", "ms", … or "" for text
  std::string range;          // for people
  std::string default_text;   // for people
  bool changeable;            // a SIGHUP rereads it from the file
  bool in_file;               // may stand in the configuration file
  bool is_list;               // takes several values
  bool is_flag;               // an option without a value: --name, --no-name
  std::string help;
  // INVALID_ARGUMENT naming the setting, its value and its range. Lists are replaced.
  std::function<absl::Status(const std::vector<std::string>& values, Settings* settings)> set;
  std::function<std::vector<std::string>(const Settings& settings)> get;

  std::string option() const;  // "--host-memory"
};

const std::vector<Setting>& SettingsTable();
const Setting* FindSetting(const std::string& name);  // by its name in the file; null if unknown

// Reads a TOML file whose keys are settings' names. An unknown key, a wrong type or a value out of range is
// INVALID_ARGUMENT with file, line and key. `only_changeable`: checks all, applies those that may change while running.
absl::Status LoadConfigFile(const std::string& path, bool only_changeable, Settings* settings);

// Puts in what depends on the machine (socket path, mode, threads, memory) and checks what depends on several settings.
absl::Status CompleteSettings(Settings* settings);

// "name = value  # unit" per line, in the table's order; readable as a configuration file.
std::string FormatSettings(const Settings& settings);

// The table as Markdown, for docs/operations.md.
std::string FormatSettingsTable();

// $HEADRACE_SOCKET if that is set, else $XDG_RUNTIME_DIR/headrace.sock, else /run/headrace/headrace.sock: where loaders look too.
std::string DefaultSocketPath();
// $HEADRACE_SOCKET; null where it is not set, or empty.
const char* SocketOfEnvironment();

}  // namespace headrace
