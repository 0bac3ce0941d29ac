#include "core/pipeline/gpu_workers.h"

#include <pthread.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/pipeline/clocks.h"

namespace headrace {
namespace {

constexpr int64_t kLookPeriodNs = 100'000;  // to look takes 1 µs

}  // namespace

GpuWorker::GpuWorker(const Gpu* gpu, GpuLane* lane, int number, const PipelineOptions& options, Scheduler* scheduler)
    : gpu_(gpu), lane_(lane), verify_(options.verify), niceness_(options.niceness), scheduler_(scheduler),
      thread_([this, number] { Run(number); }) {}

GpuWorker::~GpuWorker() { thread_.join(); }

void GpuWorker::Run(int number) {
  pthread_setname_np(pthread_self(), absl::StrCat("hr-gpu-", number).c_str());
  if (niceness_ > 0) (void)::nice(niceness_);  // of this thread alone; refused: so be it
  for (;;) {
    Batch batch;
    if (scheduler_->ClaimForGpu(gpu_, /*wait=*/batches_.empty(), &batch.job)) {
      batches_.push_back(std::move(batch));
      Start(&batches_.back());
      if (batches_.size() > 1) FinishBatch();
    } else if (!batches_.empty()) {
      FinishBatch();
    } else {
      return;
    }
  }
}

void GpuWorker::Launch(Batch* batch) {
  if (const auto volley = std::exchange(batch->job.volley, nullptr)) volley->Wait();
  lane_->Launch(batch->job.session->ring()->device(), batch->job.unit.slot);
  ++batch->bursts;
  ++bursts_;
}

void GpuWorker::Start(Batch* batch) {
  int64_t began_ns = ThreadNs(), next_look_ns = 0;
  SessionState& session = *batch->job.session;
  const int slot = batch->job.unit.slot;
  BatchFill& fill = session.batch(slot);
  const SlotMemory memory = session.ring()->memory(slot);
  const auto begin = [&] {
    while (bursts_ == GpuLane::kMaxBursts) FinishBurst();
    lane_->Begin(session.spec().recipe);
  };
  begin();
  uint32_t added = 0;  // to the burst that is being planned
  const uint32_t count = batch->job.unit.count;
  samples_.resize(count);
  for (uint32_t place = 0; place < count; ++place) samples_[place] = fill.order->SampleAt(fill.range.first_position + place);
  for (uint32_t place = 0; place < count && !fill.abandoned.load(std::memory_order_relaxed); ++place) {
    SampleFiller::Prefetch(*session.spec().dataset, samples_, place, session.shard_map());
    const uint64_t position = fill.range.first_position + place;
    const SampleFiller::Target target{memory, place, fill.start.epoch, position, &fill.texts};
    const auto add = [&] {
      return filler_.AddToBurst(session.spec(), session.layout(), samples_[place], target, verify_, session.verified(),
                                session.shard_map(), lane_);
    };
    if (const int64_t now_ns = SteadyNs(); now_ns >= next_look_ns) {
      began_ns += FinishDone();
      next_look_ns = now_ns + kLookPeriodNs;
    }
    absl::Status status = add();
    if (absl::IsResourceExhausted(status) && added > 0) {
      Launch(batch);
      begin();
      added = 0;
      status = add();
    }
    if (status.ok()) {
      ++added;
    } else {
      batch->left.push_back(place);
    }
  }
  Launch(batch);
  batch->bytes_read = filler_.TakeBytesRead();
  batch->spent_ns = ThreadNs() - began_ns;
}

void GpuWorker::FinishBurst() {
  for (Batch& batch : batches_) {
    if (batch.bursts == 0) continue;
    lane_->Finish(&batch.left);
    --batch.bursts;
    --bursts_;
    return;
  }
}

int64_t GpuWorker::FinishDone() {
  while (bursts_ > 0 && lane_->IsDone() && batches_.size() > 1) FinishBurst();
  if (batches_.size() < 2 || batches_.front().bursts > 0) return 0;
  const int64_t began_ns = ThreadNs();
  FinishBatch();
  return ThreadNs() - began_ns;
}

void GpuWorker::FinishBatch() {
  Batch& batch = batches_.front();
  while (batch.bursts > 0) FinishBurst();
  scheduler_->DoneOnGpu(&batch.job, batch.spent_ns, batch.bytes_read, &batch.left);
  batches_.pop_front();
}

absl::StatusOr<Gpu*> GpuWorkers::Get(const std::string& uuid) {
  if (!options_.open_gpu) return absl::UnavailableError("this daemon has no GPU engine");
  const std::lock_guard lock(mutex_);
  const auto found = gpus_.find(uuid);
  if (found != gpus_.end()) return found->second.gpu.get();
  HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<Gpu> gpu, options_.open_gpu(uuid, options_.device_memory_bytes, options_.on_gpu_lost));
  Used& used = gpus_[uuid];
  used.gpu = std::move(gpu);
  for (GpuLane* lane : used.gpu->lanes()) used.workers.emplace_back(used.gpu.get(), lane, num_workers_++, options_, scheduler_);
  return used.gpu.get();
}

std::vector<PipelineStats::GpuMemory> GpuWorkers::Stats() const {
  const std::lock_guard lock(mutex_);
  std::vector<PipelineStats::GpuMemory> stats;
  for (const auto& [uuid, used] : gpus_) stats.push_back({uuid, used.gpu->used_bytes()});
  return stats;
}

void GpuWorkers::Stop() {
  const std::lock_guard lock(mutex_);
  gpus_.clear();
}

}  // namespace headrace
