#include <sched.h>

#include "packer/ordered_blocks.h"

namespace headrace {

int UsableCores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

}  // namespace headrace
