#include "core/device/cuda/driver.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"

namespace headrace {
namespace {

template <typename Function>
absl::Status Find(const char* name, Function* function) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &address, 11040, cudaEnableDefault, &found);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(name, &address, cudaEnableDefault, &found);
#endif
  if (error != cudaSuccess) return absl::UnavailableError(absl::StrCat("no usable GPU: ", cudaGetErrorString(error)));
  if (found != cudaDriverEntryPointSuccess) return absl::UnavailableError(absl::StrCat("CUDA's driver has no ", name));
  *function = reinterpret_cast<Function>(address);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CudaDriver> CudaDriver::Open() {
  CudaDriver driver;
  HEADRACE_RETURN_IF_ERROR(Find("cuGetErrorString", &driver.GetErrorString));
  HEADRACE_RETURN_IF_ERROR(Find("cuDeviceGet", &driver.DeviceGet));
  HEADRACE_RETURN_IF_ERROR(Find("cuDeviceGetUuid", &driver.DeviceGetUuid));
  HEADRACE_RETURN_IF_ERROR(Find("cuMemGetAllocationGranularity", &driver.MemGetAllocationGranularity));
  HEADRACE_RETURN_IF_ERROR(Find("cuMemCreate", &driver.MemCreate));
  HEADRACE_RETURN_IF_ERROR(Find("cuMemRelease", &driver.MemRelease));
  HEADRACE_RETURN_IF_ERROR(Find("cuMemAddressReserve", &driver.MemAddressReserve));
  HEADRACE_RETURN_IF_ERROR(Find("cuMemAddressFree", &driver.MemAddressFree));
  HEADRACE_RETURN_IF_ERROR(Find("cuMemMap", &driver.MemMap));
  HEADRACE_RETURN_IF_ERROR(Find("cuMemUnmap", &driver.MemUnmap));
  HEADRACE_RETURN_IF_ERROR(Find("cuMemSetAccess", &driver.MemSetAccess));
  HEADRACE_RETURN_IF_ERROR(Find("cuMemExportToShareableHandle", &driver.MemExportToShareableHandle));
  return driver;
}

absl::Status CudaDriver::Check(CUresult result, const std::string& what) const {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const char* text = nullptr;
  const std::string message =
      absl::StrCat(what, ": ", GetErrorString(result, &text) == CUDA_SUCCESS ? text : "CUDA's error ", text == nullptr ? absl::StrCat(result) : "");
  return result == CUDA_ERROR_OUT_OF_MEMORY ? absl::ResourceExhaustedError(message) : absl::InternalError(message);
}

}  // namespace headrace
