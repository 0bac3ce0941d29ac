// Memory nodes: which processors are near which memory.
#pragma once

#include <sched.h>

#include <cstddef>
#include <string>
#include <vector>

namespace headrace {

struct NumaNode {
  int id = 0;            // the kernel's number
  cpu_set_t processors;  // those that this process may use
};

// The nodes with processors that this process may use, in the order of their numbers. One node, 0,
// when there is no more than one, or when the kernel tells nothing.
std::vector<NumaNode> ReadNumaNodes(const std::string& root = "/sys/devices/system/node");

// Lets memory of the mapping that is not taken yet come from `node` while that has any. Of a shared
// mapping this holds for everybody who maps it. Advice: nothing happens where the kernel does not
// know the node.
void PreferNode(void* begin, size_t bytes, int node);

}  // namespace headrace
