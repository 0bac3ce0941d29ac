#include "core/pipeline/pipeline.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/pipeline/gpu_workers.h"
#include "core/pipeline/memory_budget.h"
#include "core/pipeline/read_ahead.h"
#include "core/pipeline/ring_keeper.h"
#include "core/pipeline/scheduler.h"
#include "core/pipeline/shard_pinner.h"

namespace headrace {
namespace {

// Under Engine::kAuto the GPU makes the batches of those who have fewer decode threads than this when they open: it takes about so
// many of the CPU engine's to feed a ResNet-50, and more for smaller models, whose clients say that they are starved.
constexpr int kThreadsPerTrainer = 4;
// Where threads wait more than this part of their time for the disk, a GPU would wait as well.
constexpr double kDiskBound = 0.5;
constexpr std::chrono::milliseconds kLeavingTime{1000};

// Everything behind the pipeline and its sessions' handles; lives as long as the last of them. Each member uses those above it.
struct Machinery {
  explicit Machinery(const PipelineOptions& options)
      : budget(options.host_memory_bytes),
        keeper(&budget),
        scheduler(options, &keeper),
        gpus(options, &scheduler),
        pinner(options.page_cache_map_bytes),
        read_ahead(&scheduler, std::max(1, options.read_ahead_batches)) {
    scheduler.SetProgressListener([this] { read_ahead.Notify(); });
  }
  ~Machinery() {
    scheduler.Stop();  // its threads notify read_ahead
    pinner.Stop();
    gpus.Stop();
    keeper.StopPopulating();  // its jobs use the scheduler
  }

  MemoryBudget budget;
  RingKeeper keeper;
  Scheduler scheduler;
  GpuWorkers gpus;
  ShardPinner pinner;
  ReadAhead read_ahead;
};

class SessionHandle : public Session {
 public:
  SessionHandle(std::shared_ptr<Machinery> machinery, std::shared_ptr<SessionState> state)
      : machinery_(std::move(machinery)), state_(std::move(state)) {}
  ~SessionHandle() override { machinery_->scheduler.Close(state_, RingMemory::kKeep); }

  uint64_t id() const override { return state_->id(); }
  const SessionSpec& spec() const override { return state_->spec(); }
  const BatchLayout& layout() const override { return state_->layout(); }
  const HostRing& ring() const override { return *state_->ring(); }
  uint32_t first_ticket() const override { return state_->first_ticket(); }
  uint32_t Seek(const Cursor& cursor) override { return machinery_->scheduler.Seek(state_.get(), cursor); }
  void OnDoorbell() override { machinery_->scheduler.OnDoorbell(state_.get()); }
  void Close(RingMemory memory) override { machinery_->scheduler.Close(state_, memory); }
  void MarkStopping(const std::string& reason) override {
    machinery_->scheduler.MarkStopping(state_.get(), reason);
  }
  SessionStats stats() const override { return machinery_->scheduler.Stats(*state_); }

 private:
  const std::shared_ptr<Machinery> machinery_;
  const std::shared_ptr<SessionState> state_;
};

class PipelineImpl : public Pipeline {
 public:
  explicit PipelineImpl(const PipelineOptions& options)
      : machinery_(std::make_shared<Machinery>(options)), verify_(options.verify) {}
  ~PipelineImpl() override {
    machinery_->scheduler.Stop();
    machinery_->pinner.Stop();
    machinery_->gpus.Stop();
  }

  absl::StatusOr<std::shared_ptr<Session>> Open(SessionSpec spec, const Cursor& cursor, Wake wake) override;
  PipelineStats stats() const override;

 private:
  std::shared_ptr<VerifiedSamples> VerifiedOf(const std::shared_ptr<const Dataset>& dataset);
  absl::StatusOr<Gpu*> ChooseEngine(int slots, SessionSpec* spec, std::unique_ptr<DeviceRing>* device);
  void PopulateRest(const std::shared_ptr<SessionState>& state);

  const std::shared_ptr<Machinery> machinery_;
  const Verify verify_;
  std::mutex mutex_;
  // Not 1: a client that has not noticed its daemon's death names its session to the next one.
  uint64_t next_id_ = uint64_t{std::random_device()()} + 1;
  // By dataset object: sessions on the same one share what is verified.
  std::map<std::weak_ptr<const Dataset>, std::weak_ptr<VerifiedSamples>, std::owner_less<>> verified_;
};

std::shared_ptr<VerifiedSamples> PipelineImpl::VerifiedOf(const std::shared_ptr<const Dataset>& dataset) {
  std::lock_guard lock(mutex_);
  std::erase_if(verified_, [](const auto& entry) { return entry.first.expired(); });
  std::weak_ptr<VerifiedSamples>& known = verified_[dataset];
  std::shared_ptr<VerifiedSamples> verified = known.lock();
  if (!verified) known = verified = std::make_shared<VerifiedSamples>(dataset->size());
  return verified;
}

// Slots 1 … n−1, one after the other, while slot 0 is being filled already.
void PipelineImpl::PopulateRest(const std::shared_ptr<SessionState>& state) {
  Scheduler* scheduler = &machinery_->scheduler;
  MemoryBudget* budget = &machinery_->budget;
  machinery_->keeper.Populate([scheduler, budget, state, slot = 1]() mutable {
    if (!scheduler->UseRing(state.get())) return false;
    const int slots = state->ring()->num_slots();
    // A slot without memory is not used; the session goes on with those it has.
    const bool populated = slot < slots && state->ring()->Populate(slot).ok();
    if (populated) {
      budget->Taken(state->layout().slot_bytes);
      scheduler->SlotPopulated(state.get(), slot);
    }
    scheduler->DoneWithRing(state);
    return populated && ++slot < slots;
  });
}

// Waits for rings that are just being given back, as MemoryBudget does.
absl::StatusOr<std::unique_ptr<DeviceRing>> NewRing(Gpu* gpu, int slots, uint64_t slot_bytes) {
  const auto deadline = std::chrono::steady_clock::now() + kLeavingTime;
  for (;;) {
    auto ring = gpu->NewRing(slots, slot_bytes);
    if (!absl::IsResourceExhausted(ring.status()) || std::chrono::steady_clock::now() > deadline) return ring;
    std::this_thread::sleep_for(kLeavingTime / 50);
  }
}

// Who makes the session's batches: sets spec->engine, and takes GPU memory for them. Null: the decode threads.
absl::StatusOr<Gpu*> PipelineImpl::ChooseEngine(int slots, SessionSpec* spec, std::unique_ptr<DeviceRing>* device) {
  const bool asked = spec->engine == Engine::kGpu;
  if (asked && spec->gpu.empty()) {
    return absl::InvalidArgumentError("engine = \"gpu\": the trainer takes its batches on no GPU (device=\"cuda\")");
  }
  const bool is_auto = spec->engine == Engine::kAuto && !spec->gpu.empty();
  bool wanted = asked;
  if (is_auto) {
    const PipelineStats stats = machinery_->scheduler.Stats();
    // A starved one's last session may still be counted.
    wanted = spec->starved ? stats.disk_share < kDiskBound
                           : stats.decode_threads < kThreadsPerTrainer * static_cast<int>(stats.sessions.size() + 1);
  }
  spec->engine = Engine::kGpu;
  HEADRACE_ASSIGN_OR_RETURN(const BatchLayout layout, MakeBatchLayout(*spec));
  if (wanted && layout.device_field >= 0) {
    absl::StatusOr<Gpu*> gpu = machinery_->gpus.Get(spec->gpu);
    absl::Status status = gpu.status();
    if (status.ok()) {
      absl::StatusOr<std::unique_ptr<DeviceRing>> ring = NewRing(*gpu, slots, layout.device_slot_bytes);
      if (ring.ok()) {
        *device = *std::move(ring);
        return *gpu;
      }
      status = ring.status();
    }
    // UNAVAILABLE would be worth another try to the client.
    if (absl::IsUnavailable(status)) status = absl::UnimplementedError(status.message());
    if (asked) return Annotate(status, "engine = \"gpu\"");
  }
  spec->engine = is_auto && !wanted && layout.device_field >= 0 ? Engine::kAuto : Engine::kCpu;
  return nullptr;
}

absl::StatusOr<std::shared_ptr<Session>> PipelineImpl::Open(SessionSpec spec, const Cursor& cursor, Wake wake) {
  HEADRACE_RETURN_IF_ERROR(spec.Validate());
  const int slots = spec.prefetch_factor + 2;
  std::unique_ptr<DeviceRing> device;
  HEADRACE_ASSIGN_OR_RETURN(Gpu* const gpu, ChooseEngine(slots, &spec, &device));
  HEADRACE_ASSIGN_OR_RETURN(BatchLayout layout, MakeBatchLayout(spec));
  const uint64_t bytes = HR_CONTROL_BYTES + static_cast<uint64_t>(slots) * layout.slot_bytes;
  HEADRACE_RETURN_IF_ERROR(machinery_->budget.Reserve(slots, layout.slot_bytes, bytes));
  absl::StatusOr<std::unique_ptr<HostRing>> ring =
      HostRing::Create(slots, layout.slot_bytes, spec.numa_node);
  absl::Status status = ring.status();
  if (status.ok()) status = (*ring)->Populate(0);
  if (!status.ok()) {
    if (ring.ok()) ring->reset();
    machinery_->budget.ReleaseSoon(bytes);
    machinery_->budget.Released(bytes, bytes);
    return status;
  }
  machinery_->budget.Taken((*ring)->populated_bytes());
  (*ring)->Attach(std::move(device));
  auto verified = VerifiedOf(spec.dataset);
  // Where each read is hashed, the CPU reads.
  auto shard_map = gpu != nullptr && verify_ != Verify::kEvery ? machinery_->pinner.Want(spec.dataset, gpu) : nullptr;
  uint64_t id;
  {
    std::lock_guard lock(mutex_);
    id = next_id_++;
  }
  auto state = std::make_shared<SessionState>(id, std::move(spec), std::move(layout), *std::move(ring), gpu,
                                              std::move(shard_map), std::move(verified), cursor, std::move(wake));
  state->SlotPopulated(0);
  machinery_->scheduler.Add(state);
  PopulateRest(state);
  return std::make_shared<SessionHandle>(machinery_, std::move(state));
}

PipelineStats PipelineImpl::stats() const {
  PipelineStats stats = machinery_->scheduler.Stats();
  stats.host_memory_bytes = machinery_->budget.limit_bytes();
  stats.host_memory_used = machinery_->budget.used_bytes();
  stats.gpus = machinery_->gpus.Stats();
  stats.page_cache_map_bytes = machinery_->pinner.limit_bytes();
  stats.page_cache_map_used = machinery_->pinner.pinned_bytes();
  return stats;
}

}  // namespace

std::unique_ptr<Pipeline> Pipeline::Create(const PipelineOptions& options) {
  return std::make_unique<PipelineImpl>(options);
}

}  // namespace headrace
