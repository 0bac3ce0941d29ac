#include "server/machine.h"

#include <sched.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace headrace {
namespace {

// The cgroup directories of this process for a v1 controller, or for v2 with "": from its own up to the mount's root.
// Inside a container the path of /proc/self/cgroup may not exist below the mount; then only the root is looked at.
template <typename Visit>
void ForEachCgroup(const std::string& controller, const Visit& visit) {
  std::ifstream cgroups("/proc/self/cgroup");
  for (std::string line; std::getline(cgroups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool fits = controller.empty() ? controllers == ",," : controllers.find("," + controller + ",") != std::string::npos;
    if (!fits) continue;
    const std::string mount = controller.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controller;
    for (std::string path = line.substr(second + 1); path.size() > 1; path.resize(path.rfind('/'))) visit(mount + path);
    visit(mount);
  }
}

uint64_t ReadNumber(const std::string& path) {  // UINT64_MAX: no such file, or "max"
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? value : UINT64_MAX;
}

uint64_t MemoryLimit() {
  uint64_t limit = UINT64_MAX;
  ForEachCgroup("", [&](const std::string& dir) { limit = std::min(limit, ReadNumber(dir + "/memory.max")); });
  ForEachCgroup("memory", [&](const std::string& dir) {
    limit = std::min(limit, ReadNumber(dir + "/memory.limit_in_bytes"));
  });
  return limit;
}

int QuotaProcessors() {
  int processors = INT32_MAX;
  const auto limit = [&](double quota, double period) {
    if (quota > 0 && period > 0) processors = std::min(processors, static_cast<int>((quota + period - 1) / period));
  };
  ForEachCgroup("", [&](const std::string& dir) {
    std::ifstream file(dir + "/cpu.max");
    double quota = 0, period = 0;
    if (file >> quota >> period) limit(quota, period);  // "max 100000" fails to parse: no limit
  });
  ForEachCgroup("cpu", [&](const std::string& dir) {
    std::ifstream quota_file(dir + "/cpu.cfs_quota_us"), period_file(dir + "/cpu.cfs_period_us");
    double quota = 0, period = 0;
    if (quota_file >> quota && period_file >> period) limit(quota, period);
  });
  return processors;
}

}  // namespace

MachineLimits ReadMachineLimits() {
  MachineLimits limits;
  cpu_set_t set;
  CPU_ZERO(&set);
  // Above 1024 processors the call fails and all that are online count.
  limits.processors = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : get_nprocs();
  const int quota = QuotaProcessors();
  limits.processors = std::clamp(std::min(limits.processors, quota), 1, 1024);
  limits.all_processors = std::clamp(std::min(get_nprocs(), quota), limits.processors, 1024);
  struct sysinfo info = {};
  if (sysinfo(&info) == 0) limits.ram_bytes = static_cast<uint64_t>(info.totalram) * info.mem_unit;
  limits.memory_bytes = std::min(limits.ram_bytes, MemoryLimit());
  return limits;
}

void JoinAffinity(pid_t pid) {
  cpu_set_t own, other, both;
  if (sched_getaffinity(0, sizeof(own), &own) != 0 || sched_getaffinity(pid, sizeof(other), &other) != 0) return;
  CPU_OR(&both, &own, &other);
  if (CPU_EQUAL(&both, &own)) return;
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", error)) {
    sched_setaffinity(std::atoi(thread.path().filename().c_str()), sizeof(both), &both);
  }
}

}  // namespace headrace
