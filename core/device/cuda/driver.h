// Functions of CUDA's driver that its runtime does not offer. Internal to core/device/cuda.
#pragma once

#include <cuda.h>

#include <string>

#include "core/base/status.h"

namespace headrace {

struct CudaDriver {
  decltype(&cuGetErrorString) GetErrorString;
  decltype(&cuDeviceGet) DeviceGet;
  decltype(&cuDeviceGetUuid_v2) DeviceGetUuid;
  decltype(&cuMemGetAllocationGranularity) MemGetAllocationGranularity;
  decltype(&cuMemCreate) MemCreate;
  decltype(&cuMemRelease) MemRelease;
  decltype(&cuMemAddressReserve) MemAddressReserve;
  decltype(&cuMemAddressFree) MemAddressFree;
  decltype(&cuMemMap) MemMap;
  decltype(&cuMemUnmap) MemUnmap;
  decltype(&cuMemSetAccess) MemSetAccess;
  decltype(&cuMemExportToShareableHandle) MemExportToShareableHandle;

  // UNAVAILABLE without a driver, or one that lacks them.
  static absl::StatusOr<CudaDriver> Open();

  // RESOURCE_EXHAUSTED: out of memory.
  absl::Status Check(CUresult result, const std::string& what) const;
};

}  // namespace headrace
