#include "server/settings.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "core/base/byte_size.h"
#include "server/machine.h"

namespace headrace {
namespace {

using Values = std::vector<std::string>;

absl::Status Wrong(const std::string& name, const Values& values, const std::string& expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, " = ", absl::StrJoin(values, ", "), ": must be ", expected));
}

// Common parts; the makers below add set and get.
Setting Base(std::string name, std::string unit, std::string range, std::string default_text, std::string help) {
  Setting setting;
  setting.name = std::move(name);
  setting.unit = std::move(unit);
  setting.range = std::move(range);
  setting.default_text = std::move(default_text);
  setting.changeable = false;
  setting.in_file = true;
  setting.is_list = false;
  setting.is_flag = false;
  setting.help = std::move(help);
  return setting;
}

Setting Int(const std::string& name, const std::string& unit, int low, int high, const std::string& default_text,
            int Settings::* member, const std::string& help) {
  const std::string range = absl::StrCat(low, " … ", high);
  Setting setting = Base(name, unit, range, default_text, help);
  setting.set = [=](const Values& values, Settings* settings) {
    int value = 0;
    if (values.size() != 1 || !absl::SimpleAtoi(values[0], &value) || value < low || value > high) {
      return Wrong(name, values, absl::StrCat("a whole number, ", range));
    }
    settings->*member = value;
    return absl::OkStatus();
  };
  setting.get = [=](const Settings& settings) { return Values{absl::StrCat(settings.*member)}; };
  return setting;
}

Setting Bytes(const std::string& name, uint64_t low, const std::string& default_text, uint64_t Settings::* member,
              const std::string& help) {
  const std::string range = absl::StrCat("from ", FormatBytes(low));
  Setting setting = Base(name, "bytes", range, default_text, help);
  setting.set = [=](const Values& values, Settings* settings) {
    absl::StatusOr<uint64_t> value = values.size() == 1 ? ParseBytes(values[0]) : absl::InvalidArgumentError("");
    if (!value.ok() || *value < low) {
      return Wrong(name, values, absl::StrCat("a size such as 512MiB or 4GiB, ", range));
    }
    settings->*member = *value;
    return absl::OkStatus();
  };
  setting.get = [=](const Settings& settings) { return Values{FormatBytes(settings.*member)}; };
  return setting;
}

Setting Text(const std::string& name, const std::string& range, const std::string& default_text,
             std::string Settings::* member, const std::string& help) {
  Setting setting = Base(name, "", range, default_text, help);
  setting.set = [=](const Values& values, Settings* settings) {
    if (values.size() != 1 || values[0].empty()) return Wrong(name, values, range);
    settings->*member = values[0];
    return absl::OkStatus();
  };
  setting.get = [=](const Settings& settings) { return Values{settings.*member}; };
  return setting;
}

Setting List(const std::string& name, const std::string& range, const std::string& default_text,
             Values Settings::* member, const std::string& help) {
  Setting setting = Base(name, "", range, default_text, help);
  setting.is_list = true;
  setting.set = [=](const Values& values, Settings* settings) {
    for (const std::string& value : values) {
      if (value.empty()) return Wrong(name, values, range);
    }
    settings->*member = values;
    return absl::OkStatus();
  };
  setting.get = [=](const Settings& settings) { return settings.*member; };
  return setting;
}

Setting Flag(const std::string& name, const std::string& default_text, bool Settings::* member,
             const std::string& help) {
  Setting setting = Base(name, "", "true, false", default_text, help);
  setting.is_flag = true;
  setting.set = [=](const Values& values, Settings* settings) {
    if (values.size() != 1 || (values[0] != "true" && values[0] != "false")) {
      return Wrong(name, values, "true or false");
    }
    settings->*member = values[0] == "true";
    return absl::OkStatus();
  };
  setting.get = [=](const Settings& settings) { return Values{settings.*member ? "true" : "false"}; };
  return setting;
}

template <typename Enum>
Setting Choice(const std::string& name, const std::vector<std::pair<std::string, Enum>>& choices,
               const std::string& default_text, Enum Settings::* member, const std::string& help) {
  const std::string range = absl::StrJoin(choices, ", ", [](std::string* out, const auto& choice) {
    absl::StrAppend(out, choice.first);
  });
  Setting setting = Base(name, "", range, default_text, help);
  setting.set = [=](const Values& values, Settings* settings) {
    for (const auto& [text, value] : choices) {
      if (values.size() != 1 || values[0] != text) continue;
      settings->*member = value;
      return absl::OkStatus();
    }
    return Wrong(name, values, absl::StrCat("one of ", range));
  };
  setting.get = [=](const Settings& settings) {
    for (const auto& [text, value] : choices) {
      if (settings.*member == value) return Values{text};
    }
    return Values{};
  };
  return setting;
}

Setting Mode(const std::string& name, int Settings::* member, const std::string& help) {
  Setting setting = Base(name, "octal", "0000 … 0777", "0600; 0666 with allow", help);
  setting.set = [=](const Values& values, Settings* settings) {
    char* end = nullptr;
    const long mode = values.size() == 1 && !values[0].empty() ? std::strtol(values[0].c_str(), &end, 8) : -1;
    if (mode < 0 || mode > 0777 || *end != '\0') return Wrong(name, values, "permission bits in octal, 0000 … 0777");
    settings->*member = static_cast<int>(mode);
    return absl::OkStatus();
  };
  setting.get = [=](const Settings& settings) {
    const int mode = settings.*member;
    if (mode < 0) return Values{"0600"};
    return Values{absl::StrCat("0", mode >> 6 & 7, mode >> 3 & 7, mode & 7)};
  };
  return setting;
}

Setting OptionOnly(Setting setting) {
  setting.in_file = false;
  return setting;
}

Setting Changeable(Setting setting) {
  setting.changeable = true;
  return setting;
}

std::vector<Setting> MakeTable() {
  return {
      List("data", "existing directories", "none", &Settings::data,
           "Data roots: datasets are served only from below these directories."),
      Text("socket", "a path, or @name for an abstract name",
           "$HEADRACE_SOCKET, else $XDG_RUNTIME_DIR/headrace.sock, else /run/headrace/headrace.sock", &Settings::socket,
           "The hand-over socket; gRPC listens at the same path with .grpc behind it."),
      Mode("socket_mode", &Settings::socket_mode, "Permissions of both sockets."),
      List("allow", "uid:N, gid:N, user or @group names", "none", &Settings::allow,
           "Who may connect besides the daemon's own user and root."),
      Int("threads", "threads", 1, 1024, "the processors it may use", &Settings::threads,
          "Decode threads; no more of them work at a time than keep the rings full."),
      Int("niceness", "", 0, 19, "5", &Settings::niceness,
          "How far the decode threads stand back where trainers want the same processors; 0: not at all."),
      Bytes("host_memory", 1 << 20, "a quarter of the memory, or of the cgroup's limit", &Settings::host_memory,
            "Memory for the rings of all sessions together."),
      Bytes("device_memory", 64 << 20, "1536MiB", &Settings::device_memory,
            "Memory of each GPU for the batches and the work of its engine; it is taken when the first trainer wants it."),
      Bytes("page_cache_map", 0, "half of the memory, or of the cgroup's limit", &Settings::page_cache_map,
            "Shards that may be kept in memory for GPUs to read them; 0: none. A dataset of more is read piece by piece."),
      Int("sm_percentage", "%", 0, 100, "0 (all)", &Settings::sm_percentage,
          "Under MPS: the share of a GPU's multiprocessors that the GPU engine may use."),
      Choice<Verify>("verify", {{"every", Verify::kEvery}, {"once", Verify::kOnce}, {"never", Verify::kNever}}, "once",
                     &Settings::verify, "When a sample's hash is checked as it is read."),
      Choice<Isa>("isa",
                  {{"best", Isa::kBest}, {"avx512", Isa::kAvx512}, {"avx2", Isa::kAvx2}, {"sse4", Isa::kSse4},
                   {"portable", Isa::kPortable}},
                  "$HEADRACE_ISA, else best", &Settings::isa,
                  "The most that the inner loops may use of the processor's SIMD instructions; pixels are the same."),
      Int("read_ahead", "batches", 0, 64, "2", &Settings::read_ahead,
          "How far behind the last slot the disk is told what comes next."),
      Int("cold_threads", "threads", 1, 16, "2", &Settings::cold_threads,
          "Threads that open datasets and answer questions about them."),
      Int("max_connections", "connections", 1, 65536, "1024", &Settings::max_connections,
          "More are refused with a message. A process has one, and one per loader."),
      Int("frame_timeout", "ms", 100, 600000, "10000", &Settings::frame_timeout_ms,
          "A connection with a half-sent request or an untaken answer is closed after this time."),
      Flag("grpc", "true", &Settings::grpc, "Whether `headrace top` and other tools can connect."),
      Int("metrics_port", "port", 0, 65535, "0 (off)", &Settings::metrics_port, "TCP port of /metrics."),
      Text("metrics_address", "an address of this machine", "127.0.0.1", &Settings::metrics_address,
           "Where /metrics listens. Anyone who reaches it can read it."),
      Changeable(Choice<LogLevel>("log_level",
                                  {{"debug", LogLevel::kDebug}, {"info", LogLevel::kInfo}, {"warn", LogLevel::kWarn},
                                   {"error", LogLevel::kError}},
                                  "info", &Settings::log_level, "The least that is logged.")),
      Text("log_file", "a path", "standard error", &Settings::log_file, "Where the log goes; appended to."),
      OptionOnly(Flag("private", "false", &Settings::private_daemon,
                      "A loader's own daemon: serves only its own user, any dataset, and ends with its last connection.")),
      OptionOnly(Int("listen_fd", "descriptor", 3, 1023, "none", &Settings::listen_fd,
                     "A listening socket that is inherited (private daemon).")),
      OptionOnly(Int("grace_ms", "ms", 0, 86400000, "0", &Settings::grace_ms,
                     "How long a private daemon stays after its last connection.")),
  };
}

}  // namespace

std::string Setting::option() const { return absl::StrCat("--", absl::StrReplaceAll(name, {{"_", "-"}})); }

const std::vector<Setting>& SettingsTable() {
  static const auto* const kTable = new std::vector<Setting>(MakeTable());
  return *kTable;
}

const Setting* FindSetting(const std::string& name) {
  for (const Setting& setting : SettingsTable()) {
    if (setting.name == name) return &setting;
  }
  return nullptr;
}

absl::Status CompleteSettings(Settings* settings) {
  const MachineLimits machine = ReadMachineLimits();
  if (settings->threads == 0) {
    settings->threads = machine.processors;
    // The ranks of a job may be pinned to processors of their own, and this daemon runs where any of them may
    // (JoinAffinity). torchrun says how many they are.
    const char* ranks = std::getenv("LOCAL_WORLD_SIZE");
    int count = 0;
    if (settings->private_daemon && ranks != nullptr && absl::SimpleAtoi(ranks, &count) && count > 1) {
      settings->threads = static_cast<int>(
          std::min<int64_t>(machine.all_processors, static_cast<int64_t>(machine.processors) * count));
    }
  }
  if (settings->host_memory == 0) settings->host_memory = machine.memory_bytes / 4;
  if (settings->page_cache_map == UINT64_MAX) settings->page_cache_map = machine.memory_bytes / 2;
  if (const char* isa = std::getenv("HEADRACE_ISA"); isa != nullptr && settings->isa == Isa::kBest) {
    HEADRACE_RETURN_IF_ERROR(Annotate(FindSetting("isa")->set({isa}, settings), "$HEADRACE_ISA"));
  }
  if (settings->private_daemon) {
    if (settings->listen_fd < 0 && settings->socket.empty()) {
      return absl::InvalidArgumentError("--private needs --listen-fd or --socket");
    }
    if (!settings->data.empty() || !settings->allow.empty()) {
      return absl::InvalidArgumentError("--private serves its own user only, without roots: --data and --allow do not apply");
    }
    settings->grpc = false;
    return absl::OkStatus();
  }
  if (settings->data.empty()) {
    return absl::InvalidArgumentError("which data may be served? Name at least one directory: --data DIR");
  }
  if (settings->listen_fd >= 0 || settings->grace_ms != 0) {
    return absl::InvalidArgumentError("--listen-fd and --grace-ms belong to --private");
  }
  if (settings->socket.empty()) settings->socket = DefaultSocketPath();
  if (settings->socket_mode < 0) settings->socket_mode = settings->allow.empty() ? 0600 : 0666;
  return absl::OkStatus();
}

std::string FormatSettings(const Settings& settings) {
  const auto quoted = [](std::string* out, const std::string& value) {
    *out += '"';
    for (const char c : value) {
      if ((c >= 0 && c < ' ') || c == '\x7f') {
        absl::StrAppend(out, "\\u", absl::Hex(c, absl::kZeroPad4));
      } else {
        absl::StrAppend(out, c == '"' || c == '\\' ? "\\" : "", std::string(1, c));
      }
    }
    *out += '"';
  };
  std::string text;
  for (const Setting& setting : SettingsTable()) {
    if (!setting.in_file && !settings.private_daemon) continue;
    const Values values = setting.get(settings);
    std::string value;
    if (setting.is_list) {
      value = absl::StrCat("[", absl::StrJoin(values, ", ", quoted), "]");
    } else if (setting.is_flag || (!setting.unit.empty() && setting.unit != "bytes" && setting.unit != "octal")) {
      value = values[0];
    } else {
      quoted(&value, values[0]);
    }
    // No text is how some defaults are kept; it cannot be set.
    const bool is_unset = !setting.is_list && values[0].empty();
    absl::StrAppend(&text, is_unset ? "# " : "", setting.name, " = ", value, setting.unit.empty() ? "" : "  # ",
                    setting.unit, "\n");
  }
  return text;
}

std::string FormatSettingsTable() {
  std::string text = "| option | unit | range | default | changeable | what |\n|---|---|---|---|---|---|\n";
  for (const Setting& setting : SettingsTable()) {
    absl::StrAppend(&text, "| `", setting.option(), "` | ", setting.unit, " | ", setting.range, " | ",
                    setting.default_text, " | ", setting.changeable ? "SIGHUP" : "at start", " | ", setting.help,
                    setting.in_file ? "" : " Not in the file.", " |\n");
  }
  return text;
}

const char* SocketOfEnvironment() {
  const char* named = std::getenv("HEADRACE_SOCKET");
  return named != nullptr && *named != '\0' ? named : nullptr;
}

std::string DefaultSocketPath() {
  if (const char* named = SocketOfEnvironment()) return named;
  const char* runtime_dir = std::getenv("XDG_RUNTIME_DIR");
  if (runtime_dir != nullptr && runtime_dir[0] == '/') return absl::StrCat(runtime_dir, "/headrace.sock");
  return "/run/headrace/headrace.sock";
}

}  // namespace headrace
