// GPUs of ordinary memory: they keep the contract of core/device/gpu.h, abort when it is broken, and do what a test asks for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/device/gpu.h"

namespace headrace::testing {

struct FakeGpuFaults {
  absl::Status open, pin;               // what opening one and pinning says
  uint32_t burst_samples = UINT32_MAX;  // more do not fit into a burst
  // Of the places of a batch one of so many is refused by Add, or left at Finish; 0: none.
  uint32_t refused_of = 0, left_of = 0;
};

struct FakeGpuCounts {
  int gpus = 0, rings = 0, bursts = 0;  // that there are now
  uint64_t images = 0, mapped = 0;      // made so far, and added so far from pinned files
};

// The GPUs of a machine. Thread-safe; they may outlive it.
class FakeGpus {
 public:
  FakeGpus();

  // CUDA's identity of GPU 0 or 1.
  static std::string Uuid(int number);
  OpenGpu opener() const;

  void Set(const FakeGpuFaults& faults);
  FakeGpuCounts counts() const;
  FakeGpuCounts counts(int number) const;  // of one GPU
  uint64_t pinned_bytes() const;

  // While it lives, so many bursts of each lane are done and no more.
  class Hold {
   public:
    explicit Hold(FakeGpus* gpus, uint64_t bursts = 0);
    ~Hold() { LetGo(); }
    void LetGo();
    // Until so many bursts are on their way; 60 s at most, then false.
    bool WaitForBursts(int count);

   private:
    FakeGpus* const gpus_;
  };

 private:
  friend class FakeGpu;
  friend class FakeLane;
  friend class FakeRing;
  struct Machine;
  const std::shared_ptr<Machine> machine_;
};

}  // namespace headrace::testing
