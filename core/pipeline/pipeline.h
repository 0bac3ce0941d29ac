// Sessions and the threads that fill their rings. Knows no sockets: the server tells it what clients did and is told
// when a client must be woken.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/numa.h"
#include "core/slot/batch_layout.h"
#include "core/batch/session_spec.h"
#include "core/read/sample_reader.h"
#include "core/device/gpu.h"
#include "core/slot/host_ring.h"

namespace headrace {

struct PipelineOptions {
  int decode_threads = 1;         // named "hr-decode-N"; no more of them work at a time than keep the rings full
  // More than one: each decode thread stays on one of them, and first works for sessions that want to be near it.
  std::vector<NumaNode> numa_nodes;
  int niceness = 0;               // by which the decode threads stand back behind the process's own, 0 … 19
  uint64_t host_memory_bytes = 0; // for all rings together
  Verify verify = Verify::kOnce;
  int read_ahead_batches = 2;     // batches behind the last slot being filled whose bytes are put on their way
  // Called from decode threads, once per bad sample and session whatever its policy, with "shard S, sample N (name): …".
  // May be empty.
  std::function<void(const std::string& message)> on_bad_sample;

  OpenGpu open_gpu;  // empty: no GPU engine
  uint64_t device_memory_bytes = 0;  // the most that is taken of each GPU's memory
  GpuLost on_gpu_lost;  // must not return
  // Shards of so many bytes may be kept in memory for GPUs to read them. A dataset of more, or beside others, is read piece by piece.
  uint64_t page_cache_map_bytes = 0;
};

// What becomes of a closed session's memory while somebody else still maps it.
enum class RingMemory {
  kKeep,     // the client lives and may hold tensors of it (also when the daemon stops): its pages go when it unmaps them
  kDiscard,  // the client's process is dead: its pages go at once, even if a forked child still maps them
};

struct SessionStats {
  uint64_t id = 0;
  std::string dataset;
  int rank = 0, world_size = 1;
  uint64_t batches = 0, samples = 0, bad_samples = 0;
  uint64_t decode_ns = 0;      // thread time spent for this session
  bool on_gpu = false;         // its engine
  uint64_t left_samples = 0;   // by the GPU to the decode threads
  int slots = 0, slots_ready = 0;
  uint64_t ring_bytes = 0;
  Cursor cursor;               // of the next batch to be made
};

struct PipelineStats {
  std::vector<SessionStats> sessions;
  int decode_threads = 0, threads_in_use = 0;  // all, and those that may work at present
  uint64_t host_memory_bytes = 0, host_memory_used = 0;
  uint64_t samples = 0, bad_samples = 0, batches = 0, bytes_read = 0;
  uint64_t decode_ns = 0;
  double disk_share = 0;  // of the decode threads' newest work: waiting for the disk
  std::string simd_target;
  struct GpuMemory {
    std::string uuid;
    uint64_t used_bytes = 0;
  };
  std::vector<GpuMemory> gpus;  // those in use
  uint64_t device_memory_bytes = 0;  // declared, of each
  uint64_t page_cache_map_bytes = 0, page_cache_map_used = 0;  // allowed, and pinned
};

// One trainer's subscription. All calls are thread-safe and do not block on decoding.
class Session {
 public:
  virtual ~Session() = default;
  virtual uint64_t id() const = 0;
  virtual const SessionSpec& spec() const = 0;
  virtual const BatchLayout& layout() const = 0;
  virtual const HostRing& ring() const = 0;
  // The ticket of the first batch at the cursor it was opened with.
  virtual uint32_t first_ticket() const = 0;
  // From now on batches start at `cursor` (any numbers: a position with no step behind it is the next epoch's beginning);
  // returns the first ticket of the new sequence. Fills under way are abandoned.
  virtual uint32_t Seek(const Cursor& cursor) = 0;
  // The client sent a byte: look at its `released` words.
  virtual void OnDoorbell() = 0;
  // Frees the ring on another thread, once no decode thread writes into it (at most one sample later). ring() must
  // not be called any more; everything else may, and does nothing. Idempotent: the first call decides about the memory. The
  // destructor closes with kKeep.
  virtual void Close(RingMemory memory) = 0;
  // Sets the control page's `stopping` word and reason, for the client to find.
  virtual void MarkStopping(const std::string& reason) = 0;
  virtual SessionStats stats() const = 0;
};

class Pipeline {
 public:
  // `wake` is called when a ticket became ready and the client's `waiting` word was set: from decode threads, perhaps from several
  // at once, and perhaps once more while or shortly after Close is called. It must not block, and not own the Session.
  using Wake = std::function<void()>;

  static std::unique_ptr<Pipeline> Create(const PipelineOptions& options);
  virtual ~Pipeline() = default;  // closes the sessions (kKeep), joins the threads

  // Reserves the ring's memory (RESOURCE_EXHAUSTED with the numbers when the budget or the cgroup's limit is too small)
  // and starts filling. Populates slot 0 before it returns (0.5 ms per MB of a slot), the others on another thread.
  // INVALID_ARGUMENT: SessionSpec::Validate, MakeBatchLayout. UNIMPLEMENTED, RESOURCE_EXHAUSTED: the GPU engine was asked for and
  // cannot be had (OpenGpu, Gpu::NewRing); under Engine::kAuto the CPU engine takes its place. The session's spec says which it is;
  // kAuto: the CPU engine, and SessionSpec::starved may make it the other.
  virtual absl::StatusOr<std::shared_ptr<Session>> Open(SessionSpec spec, const Cursor& cursor, Wake wake) = 0;
  virtual PipelineStats stats() const = 0;
};

}  // namespace headrace
