// The GPUs in use and their threads.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/device/gpu.h"
#include "core/pipeline/pipeline.h"
#include "core/pipeline/scheduler.h"

namespace headrace {

// The thread "hr-gpu-N" fills batches of the sessions on one GPU through one of its lanes: it plans a batch and launches its bursts
// while the one before is still being made. What the GPU does not make goes to the decode threads.
class GpuWorker {
 public:
  GpuWorker(const Gpu* gpu, GpuLane* lane, int number, const PipelineOptions& options, Scheduler* scheduler);
  ~GpuWorker();  // once the scheduler has stopped

 private:
  struct Batch {
    Scheduler::Job job;
    int bursts = 0;  // on their way
    int64_t spent_ns = 0;
    uint64_t bytes_read = 0;
    std::vector<uint32_t> left;
  };
  void Run(int number);
  void Start(Batch* batch);
  void Launch(Batch* batch);
  // Waits for the oldest burst of all.
  void FinishBurst();
  void FinishBatch();
  // Batches whose bursts are done, while the last one is being planned. Returns the thread time that went into them.
  int64_t FinishDone();

  const Gpu* const gpu_;
  GpuLane* const lane_;
  const Verify verify_;
  const int niceness_;
  Scheduler* const scheduler_;
  std::vector<uint64_t> samples_;  // of the batch that is being planned
  SampleFiller filler_;
  std::deque<Batch> batches_;  // on their way, oldest first
  int bursts_ = 0;             // of all of them
  std::thread thread_;
};

// Thread-safe.
class GpuWorkers {
 public:
  GpuWorkers(const PipelineOptions& options, Scheduler* scheduler) : options_(options), scheduler_(scheduler) {}

  // Opens the GPU when it is asked for first, which blocks for some 0.3 s. UNAVAILABLE, RESOURCE_EXHAUSTED: see OpenGpu.
  absl::StatusOr<Gpu*> Get(const std::string& uuid);
  std::vector<PipelineStats::GpuMemory> Stats() const;
  // Once the scheduler has stopped: joins the threads.
  void Stop();

 private:
  const PipelineOptions options_;
  Scheduler* const scheduler_;
  mutable std::mutex mutex_;
  struct Used {
    std::unique_ptr<Gpu> gpu;
    std::deque<GpuWorker> workers;
  };
  std::map<std::string, Used> gpus_;  // by identity
  int num_workers_ = 0;
};

}  // namespace headrace
