#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "client/protocol.h"
#include "core/base/file.h"
#include "core/shard/dataset.h"
#include "server/machine.h"
#include "server/peer.h"
#include "server/settings.h"
#include "server/unix_socket.h"

namespace headrace {
namespace {

enum class Verdict { kOk, kWarn, kFail };

struct Finding {
  Verdict verdict;
  std::string what;    // one or two words
  std::string detail;  // and what to do about it
};

Finding CheckMemfd() {
  const UniqueFd fd(memfd_create("headrace-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return {Verdict::kFail, "memfd", absl::StrCat("memfd_create: ", std::strerror(errno))};
  if (ftruncate(fd.get(), 4096) != 0 || fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return {Verdict::kFail, "memfd", absl::StrCat("sealing: ", std::strerror(errno))};
  }
  return {Verdict::kOk, "memfd", "shared memory without names, sealed"};
}

Finding CheckPopulate() {
  const size_t bytes = 4096;
  void* page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const bool works = page != MAP_FAILED && madvise(page, bytes, MADV_POPULATE_WRITE) == 0;
  if (page != MAP_FAILED) munmap(page, bytes);
  if (works) return {Verdict::kOk, "MADV_POPULATE_WRITE", "refused memory is an error, not a crash"};
  return {Verdict::kWarn, "MADV_POPULATE_WRITE", "missing (Linux 5.14 and later have it): memory is touched page by page"};
}

Finding CheckPidfd() {
  const UniqueFd own(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (!own.valid()) {
    return {Verdict::kWarn, "pidfd", "missing (Linux 5.3 and later have it): the memory of a killed trainer stays as long "
                                     "as a child of it lives"};
  }
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return {Verdict::kFail, "pidfd", absl::StrCat("socketpair: ", std::strerror(errno))};
  }
  const UniqueFd first(ends[0]), second(ends[1]);
  constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD
  int fd = -1;
  socklen_t length = sizeof(fd);
  const bool exact = getsockopt(first.get(), SOL_SOCKET, kPeerPidfd, &fd, &length) == 0;
  const UniqueFd close_it(exact ? fd : -1);
  return {Verdict::kOk, "pidfd", exact ? "dead trainers are noticed at once" : "dead trainers are noticed at once (by pid)"};
}

Finding CheckSocketFolder(const std::string& socket) {
  if (socket[0] == '@') return {Verdict::kOk, "socket folder", "none needed: an abstract name"};
  const size_t slash = socket.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : socket.substr(0, slash);
  struct stat info = {};
  if (stat(folder.c_str(), &info) != 0) {
    const size_t parent_slash = folder.rfind('/');
    const std::string parent = parent_slash == 0 || parent_slash == std::string::npos ? "/" : folder.substr(0, parent_slash);
    if (access(parent.c_str(), W_OK | X_OK) == 0) return {Verdict::kOk, "socket folder", folder + " can be made"};
    return {Verdict::kWarn, "socket folder", absl::StrCat(folder, " is missing and this user cannot make it: a node's daemon "
                                                                  "needs it (systemd makes it), or use --socket")};
  }
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    return {Verdict::kWarn, "socket folder", folder + ": this user cannot start a daemon there (connecting may work)"};
  }
  if ((info.st_mode & 0022) != 0 && (info.st_mode & S_ISVTX) == 0) {
    return {Verdict::kWarn, "socket folder", folder + ": other users can replace files there"};
  }
  return {Verdict::kOk, "socket folder", folder};
}

// Says HELLO on the hand-over socket.
absl::StatusOr<hr_hello_answer> SayHello(const std::string& socket) {
  HEADRACE_ASSIGN_OR_RETURN(const UniqueFd fd, ConnectTo(socket));
  const timeval timeout = {5, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  struct {
    hr_header header = {HR_MAGIC, HR_HELLO, sizeof(hr_hello), 1};
    hr_hello body = {HR_PROTOCOL_VERSION, 0};
  } request;
  HEADRACE_RETURN_IF_ERROR(WriteAll(fd.get(), &request, sizeof(request), socket));
  struct {
    hr_header header = {};
    hr_hello_answer body = {};
  } answer;
  const ssize_t size = recv(fd.get(), &answer, sizeof(answer), MSG_WAITALL);
  if (size < static_cast<ssize_t>(sizeof(answer)) || answer.header.type != HR_HELLO + HR_ANSWER) {
    return absl::DeadlineExceededError(absl::StrCat(
        "at ", socket, " somebody listens but does not answer HELLO: a daemon that hangs, is stopped, or is of another version"));
  }
  answer.body.version[sizeof(answer.body.version) - 1] = '\0';
  return answer.body;
}

// `named`: by the user, for loaders that will have no other.
Finding CheckDaemon(const std::string& socket, bool named) {
  const absl::StatusOr<hr_hello_answer> answer = SayHello(socket);
  if (answer.ok()) {
    return {Verdict::kOk, "daemon", absl::StrCat("headrace ", answer->version, ", pid ", answer->daemon_pid, ", at ", socket)};
  }
  if (absl::IsNotFound(answer.status()) || absl::IsUnavailable(answer.status())) {
    if (!named) return {Verdict::kOk, "daemon", absl::StrCat("none at ", socket, ": loaders start their own")};
    return {Verdict::kWarn, "daemon", absl::StrCat("none at ", socket, ": loaders that are told this socket wait for one; start it "
                                                   "with `headrace serve --socket ", socket, " --data DIR`")};
  }
  return {Verdict::kWarn, "daemon", std::string(answer.status().message())};
}

Finding CheckMemory(const MachineLimits& machine) {
  const std::string text =
      absl::StrCat(machine.memory_bytes >> 20, " MiB usable of ", machine.ram_bytes >> 20, " MiB",
                   machine.memory_bytes < machine.ram_bytes ? " (the cgroup's limit)" : "", "; rings may take ",
                   machine.memory_bytes >> 22, " MiB unless --host-memory says otherwise");
  const bool small = machine.memory_bytes < (2ull << 30);
  return {small ? Verdict::kWarn : Verdict::kOk, "memory",
          small ? text + "; a float32 batch of 256 at 224 × 224 takes 147 MiB per slot" : text};
}

Finding CheckDescriptors() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const std::string text = absl::StrCat(limit.rlim_max, " open files (a shard takes two, a session three)");
  if (limit.rlim_max >= 4096) return {Verdict::kOk, "open files", text};
  return {Verdict::kWarn, "open files", text + ": raise the hard limit (ulimit -Hn) for datasets of many shards"};
}

Finding CheckGpu() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return {Verdict::kOk, "GPU", "no CUDA driver here: batches are made and handed over in host memory"};
  using Init = int (*)(unsigned);
  using Count = int (*)(int*);
  const auto init = reinterpret_cast<Init>(dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<Count>(dlsym(driver, "cuDeviceGetCount"));
  int devices = 0;
  const int error = init == nullptr || count == nullptr ? -1 : init(0);
  if (error != 0 || count(&devices) != 0) {
    return {Verdict::kWarn, "GPU", absl::StrCat("the CUDA driver is there but does not start (error ", error, ")")};
  }
  return {Verdict::kOk, "GPU", absl::StrCat(devices, " visible")};
}

Finding CheckDataset(const std::string& path) {
  const auto dataset = Dataset::Open(path);
  if (!dataset.ok()) return {Verdict::kFail, "dataset", std::string(dataset.status().message())};
  return {Verdict::kOk, "dataset", absl::StrCat(path, ": ", (*dataset)->size(), " samples in ", (*dataset)->num_shards(),
                                                " shards")};
}

int Doctor(const std::string& named_socket, const std::vector<std::string>& datasets) {
  const std::string socket = named_socket.empty() ? DefaultSocketPath() : named_socket;
  const MachineLimits machine = ReadMachineLimits();
  utsname kernel = {};
  uname(&kernel);
  std::vector<Finding> findings = {
      {Verdict::kOk, "kernel", absl::StrCat(kernel.sysname, " ", kernel.release, " ", kernel.machine)},
      {Verdict::kOk, "processors", absl::StrCat(machine.processors, " usable, so as many decode threads")},
      CheckMemory(machine),
      CheckDescriptors(),
      CheckMemfd(),
      CheckPopulate(),
      CheckPidfd(),
      CheckSocketFolder(socket),
      CheckDaemon(socket, !named_socket.empty() || SocketOfEnvironment() != nullptr),
      CheckGpu(),
  };
  for (const std::string& path : datasets) findings.push_back(CheckDataset(path));
  bool failed = false;
  for (const Finding& finding : findings) {
    const char* mark = finding.verdict == Verdict::kOk ? "ok  " : finding.verdict == Verdict::kWarn ? "warn" : "FAIL";
    std::printf("%s  %-20s %s\n", mark, finding.what.c_str(), finding.detail.c_str());
    failed |= finding.verdict == Verdict::kFail;
  }
  return failed ? kExitFailed : kExitDone;
}

constexpr char kExamples[] = R"(
Examples:
  headrace doctor                              this machine, and the daemon that loaders find
  headrace doctor /data/train /data/val        and whether these datasets open
  headrace doctor --socket /run/other.sock     another daemon)";

}  // namespace

void AddDoctor(CLI::App& app, int* exit_code) {
  struct Options {
    std::string socket;
    std::vector<std::string> datasets;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("doctor", "Check this machine, a daemon and datasets");
  command->add_option("--socket", options->socket, "The daemon's socket [default: as serve]");
  command->add_option("dataset", options->datasets, "Datasets to open");
  command->footer(kExamples);
  command->callback([options, exit_code] { *exit_code = Doctor(options->socket, options->datasets); });
}

}  // namespace headrace
