#include "core/device/cuda/cuda_gpu.h"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <atomic>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/augment/gpu/renderer.h"
#include "core/base/byte_size.h"
#include "core/base/unique_fd.h"
#include "core/device/cuda/driver.h"

namespace headrace {
namespace {

// While one's kernels wait for their longest segments, the others' find room; and so many threads plan.
constexpr int kLanes = 3;

absl::Status Check(cudaError_t error, const char* what) {
  return error == cudaSuccess ? absl::OkStatus() : absl::InternalError(absl::StrCat(what, ": ", cudaGetErrorString(error)));
}

// How much of a GPU's declared memory is in use.
class DeviceMemory {
 public:
  explicit DeviceMemory(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  absl::Status Take(uint64_t bytes) {
    const uint64_t before = used_bytes_.fetch_add(bytes);
    if (before + bytes <= limit_bytes_) return absl::OkStatus();
    used_bytes_ -= bytes;
    return absl::ResourceExhaustedError(
        absl::StrCat("a session's batches need ", FormatBytes(bytes), " of GPU memory; of ", FormatBytes(limit_bytes_), " declared, ",
                     FormatBytes(before), " are in use: raise --device-memory, or lower batch_size or prefetch_factor"));
  }
  void GiveBack(uint64_t bytes) { used_bytes_ -= bytes; }
  uint64_t used_bytes() const { return used_bytes_; }

 private:
  const uint64_t limit_bytes_;
  std::atomic<uint64_t> used_bytes_{0};
};

class CudaRing : public DeviceRing {
 public:
  CudaRing(const CudaDriver& driver, int device, std::shared_ptr<DeviceMemory> memory, uint64_t slot_bytes, GpuLost lost)
      : driver_(driver), device_(device), memory_(std::move(memory)), slot_bytes_(slot_bytes), lost_(std::move(lost)) {}

  absl::Status Create(uint64_t bytes) {
    HEADRACE_RETURN_IF_ERROR(Check(cudaSetDevice(device_), "the GPU"));
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device_}};
    size_t granularity = 0;
    HEADRACE_RETURN_IF_ERROR(driver_.Check(
        driver_.MemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM), "the GPU's memory"));
    bytes = (bytes + granularity - 1) / granularity * granularity;
    HEADRACE_RETURN_IF_ERROR(memory_->Take(bytes));
    bytes_ = bytes;
    const std::string what = absl::StrCat(FormatBytes(bytes), " of GPU memory for a session's batches");
    CUmemGenericAllocationHandle handle;
    HEADRACE_RETURN_IF_ERROR(driver_.Check(driver_.MemCreate(&handle, bytes, &properties, 0), what));
    int fd = -1;
    absl::Status status = driver_.Check(
        driver_.MemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), "a descriptor of GPU memory");
    fd_ = UniqueFd(fd);
    if (status.ok()) status = driver_.Check(driver_.MemAddressReserve(&address_, bytes, 0, 0, 0), what);
    if (status.ok()) {
      status = driver_.Check(driver_.MemMap(address_, bytes, 0, handle, 0), what);
      is_mapped_ = status.ok();
    }
    CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (status.ok()) status = driver_.Check(driver_.MemSetAccess(address_, bytes, &access, 1), what);
    driver_.MemRelease(handle);  // the mapping and the descriptor keep it
    return status;
  }

  ~CudaRing() override {
    if (is_mapped_) driver_.MemUnmap(address_, bytes_);
    if (address_ != 0) driver_.MemAddressFree(address_, bytes_);
    memory_->GiveBack(bytes_);
  }

  uint64_t total_bytes() const override { return bytes_; }
  int fd() const override { return fd_.get(); }
  uint8_t* slot(int i) const { return reinterpret_cast<uint8_t*>(address_) + static_cast<uint64_t>(i) * slot_bytes_; }

  void Write(int slot_number, uint64_t offset, absl::Span<const uint8_t> bytes) override {
    Copy(slot(slot_number) + offset, bytes.data(), bytes.size(), cudaMemcpyHostToDevice);
  }
  void Move(int slot_number, uint64_t to, uint64_t from, uint64_t bytes) override {
    Copy(slot(slot_number) + to, slot(slot_number) + from, bytes, cudaMemcpyDeviceToDevice);
  }

 private:
  void Copy(void* to, const void* from, uint64_t bytes, cudaMemcpyKind kind) {
    cudaError_t error = cudaSetDevice(device_);
    if (error == cudaSuccess) error = cudaMemcpyAsync(to, from, bytes, kind, cudaStreamPerThread);
    if (error == cudaSuccess) error = cudaStreamSynchronize(cudaStreamPerThread);
    if (error != cudaSuccess) lost_(absl::StrCat("a copy on the GPU: ", cudaGetErrorString(error)));
  }

  const CudaDriver driver_;
  const int device_;
  const std::shared_ptr<DeviceMemory> memory_;
  const uint64_t slot_bytes_;
  const GpuLost lost_;
  uint64_t bytes_ = 0;
  UniqueFd fd_;
  CUdeviceptr address_ = 0;
  bool is_mapped_ = false;
};

class CudaLane : public GpuLane {
  static_assert(kMaxBursts == GpuRenderer::kMaxBursts);

 public:
  CudaLane(std::unique_ptr<GpuRenderer> renderer, GpuLost lost) : renderer_(std::move(renderer)), lost_(std::move(lost)) {}

  void Begin(const Recipe& recipe) override { Demand(renderer_->Begin(recipe)); }
  absl::StatusOr<ByteRange> Plan(const GpuSample& sample) override { return renderer_->Plan(sample); }
  absl::StatusOr<uint8_t*> Stage(uint64_t bytes) override { return renderer_->Stage(bytes); }
  absl::Status AddStaged(uint64_t bytes) override { return renderer_->AddStaged(bytes); }
  absl::Status AddMapped(const uint8_t* bytes, uint64_t size) override { return renderer_->AddMapped(bytes, size); }
  void Launch(DeviceRing* ring, int slot) override { Demand(renderer_->Launch(static_cast<CudaRing*>(ring)->slot(slot))); }
  bool IsDone() override { return renderer_->IsDone(); }
  void Finish(std::vector<uint32_t>* left) override { Demand(renderer_->Finish(left)); }

 private:
  void Demand(const absl::Status& status) {
    if (!status.ok()) lost_(std::string(status.message()));
  }

  const std::unique_ptr<GpuRenderer> renderer_;
  const GpuLost lost_;
};

class CudaGpu : public Gpu {
 public:
  CudaGpu(const CudaDriver& driver, int device, uint64_t memory_bytes, GpuLost lost)
      : driver_(driver), device_(device), memory_(std::make_shared<DeviceMemory>(memory_bytes)), lost_(std::move(lost)) {}

  absl::Status Open(int lanes, uint64_t lane_bytes) {
    for (int i = 0; i < lanes; ++i) {
      HEADRACE_RETURN_IF_ERROR(memory_->Take(lane_bytes));
      HEADRACE_ASSIGN_OR_RETURN(auto renderer, GpuRenderer::Create(device_, lane_bytes));
      lanes_.push_back(std::make_unique<CudaLane>(std::move(renderer), lost_));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<DeviceRing>> NewRing(int num_slots, uint64_t slot_bytes) override {
    auto ring = std::make_unique<CudaRing>(driver_, device_, memory_, slot_bytes, lost_);
    HEADRACE_RETURN_IF_ERROR(ring->Create(static_cast<uint64_t>(num_slots) * slot_bytes));
    return ring;
  }
  std::vector<GpuLane*> lanes() override {
    std::vector<GpuLane*> lanes;
    for (const auto& lane : lanes_) lanes.push_back(lane.get());
    return lanes;
  }
  absl::StatusOr<std::shared_ptr<void>> Pin(const uint8_t* address, uint64_t bytes) override {
    HEADRACE_RETURN_IF_ERROR(Check(cudaSetDevice(device_), "the GPU"));
    int same_address = 0;
    HEADRACE_RETURN_IF_ERROR(Check(cudaDeviceGetAttribute(&same_address, cudaDevAttrCanUseHostPointerForRegisteredMem, device_), "the GPU"));
    if (same_address == 0) return absl::InternalError("this GPU has other addresses for mapped files");
    void* const memory = const_cast<uint8_t*>(address);
    constexpr unsigned int kFlags = cudaHostRegisterPortable | cudaHostRegisterMapped | cudaHostRegisterReadOnly;
    HEADRACE_RETURN_IF_ERROR(Check(cudaHostRegister(memory, bytes, kFlags), "a mapped file"));
    return std::shared_ptr<void>(memory, [device = device_](void* pinned) {
      if (cudaSetDevice(device) == cudaSuccess) cudaHostUnregister(pinned);
    });
  }
  uint64_t used_bytes() const override { return memory_->used_bytes(); }

 private:
  const CudaDriver driver_;
  const int device_;
  const std::shared_ptr<DeviceMemory> memory_;  // rings may outlive this
  const GpuLost lost_;
  std::vector<std::unique_ptr<CudaLane>> lanes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Gpu>> OpenCudaGpu(const std::string& uuid, uint64_t memory_bytes, const GpuLost& lost) {
  HEADRACE_ASSIGN_OR_RETURN(const CudaDriver driver, CudaDriver::Open());
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    return absl::UnavailableError(absl::StrCat("no usable GPU: ", cudaGetErrorString(error)));
  }
  for (int device = 0; device < count; ++device) {
    CUdevice number;
    CUuuid found;
    if (driver.DeviceGet(&number, device) != CUDA_SUCCESS || driver.DeviceGetUuid(&found, number) != CUDA_SUCCESS) continue;
    if (absl::BytesToHexString(absl::string_view(found.bytes, sizeof(found.bytes))) != uuid) continue;
    // Half of it is what the bursts work in: 200 MB do for 256 photos at once.
    auto gpu = std::make_unique<CudaGpu>(driver, device, memory_bytes, lost);
    HEADRACE_RETURN_IF_ERROR(gpu->Open(kLanes, memory_bytes / (2 * kLanes) >> 20 << 20));
    return gpu;
  }
  return absl::UnavailableError(absl::StrCat("the daemon sees ", count, " GPU(s), none of them the trainer's (", uuid, ")"));
}

}  // namespace headrace
