#include "core/base/numa.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

namespace headrace {
namespace {

constexpr int kMaxNodes = 1024;

// "0-3,8-11".
cpu_set_t ParseList(const std::string& path) {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::ifstream file(path);
  int first, last;
  while (file >> first) {
    last = first;
    if (file.peek() == '-') file.ignore() >> last;
    for (int i = std::max(first, 0); i <= last && i < CPU_SETSIZE; ++i) CPU_SET(i, &set);
    if (file.peek() == ',') file.ignore();
  }
  return set;
}

}  // namespace

std::vector<NumaNode> ReadNumaNodes(const std::string& root) {
  NumaNode all;
  CPU_ZERO(&all.processors);
  const bool known = sched_getaffinity(0, sizeof all.processors, &all.processors) == 0;
  std::vector<NumaNode> nodes;
  for (int id = 0; known && id < kMaxNodes; ++id) {
    const std::string folder = root + "/node" + std::to_string(id);
    std::error_code error;
    if (!std::filesystem::is_directory(folder, error)) continue;
    NumaNode node{id, ParseList(folder + "/cpulist")};
    CPU_AND(&node.processors, &node.processors, &all.processors);
    if (CPU_COUNT(&node.processors) > 0) nodes.push_back(node);
  }
  return nodes.size() > 1 ? nodes : std::vector<NumaNode>{all};
}

void PreferNode(void* begin, size_t bytes, int node) {
  if (node < 0 || node >= kMaxNodes) return;
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  std::array<unsigned long, kMaxNodes / kBits> mask = {};
  const size_t bit = static_cast<size_t>(node);
  mask[bit / kBits] = 1UL << bit % kBits;
  (void)::syscall(SYS_mbind, begin, bytes, MPOL_PREFERRED, mask.data(), kMaxNodes + 1, 0);
}

}  // namespace headrace
