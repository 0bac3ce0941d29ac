// Where a batch lies: in host memory, and its images in GPU memory where the GPU engine makes them.
#pragma once

#include <cstdint>

#include "core/device/gpu.h"

namespace headrace {

struct SlotMemory {
  SlotMemory(uint8_t* host_memory, DeviceRing* ring = nullptr, int number = 0)  // NOLINT: mostly there is host memory only
      : host(host_memory), device(ring), device_slot(number) {}

  uint8_t* host;
  DeviceRing* device;  // null: the images lie in `host` too
  int device_slot;
};

}  // namespace headrace
