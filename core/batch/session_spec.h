// Everything that defines a session's batches; with a cursor, everything that defines the next one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/augment/recipe.h"
#include "core/shard/dataset.h"
#include "core/shard/known_bad.h"

namespace headrace {

enum class Shuffle : uint8_t { kNone, kGlobal, kBlocks };
enum class LastBatch : uint8_t { kPartial, kPad, kDrop };
enum class Engine : uint8_t { kAuto, kCpu, kGpu };
enum class OnBadSample : uint8_t { kFail, kSkip, kSubstitute };

// Order and draws of this build; part of every state and every OPEN answer (docs/order.md, docs/pixels.md).
inline constexpr uint32_t kOrderVersion = 1;
inline constexpr uint32_t kPixelVersion = 1;

inline constexpr int64_t kMaxBad = 10'000;  // the most that max_bad can be: a client carries the numbers

struct SessionSpec {
  std::shared_ptr<const Dataset> dataset;
  Recipe recipe;
  std::vector<std::string> fields = {"image", "label"};
  int batch_size = 1;  // samples per rank and step, 1 … 65536
  int rank = 0, world_size = 1;
  uint64_t seed = 0;
  Shuffle shuffle = Shuffle::kNone;
  LastBatch last_batch = LastBatch::kPartial;
  OnBadSample on_bad_sample = OnBadSample::kFail;
  int64_t max_bad = -1;  // different bad samples that kSkip and kSubstitute pass over; −1: any number
  // Samples that count towards max_bad from the beginning: of the same session, before its daemon died.
  std::vector<uint64_t> counted_bad;
  std::shared_ptr<KnownBad> known_bad;  // of `dataset`; null: nothing is remembered
  int prefetch_factor = 2;  // slots = prefetch_factor + 2
  int max_threads = 0;      // num_workers; 0: as many as the daemon has
  int numa_node = -1;       // where slots and threads are to be near (the trainer's GPU's node); −1: anywhere
  Engine engine = Engine::kAuto;  // who decodes
  // Under kAuto: the decode threads have not kept this session's ring full, so the GPU is to make the batches.
  bool starved = false;
  std::string gpu;          // CUDA's identity of the trainer's GPU, 32 hex digits; "": the trainer uses none

  // INVALID_ARGUMENT naming the key when a value is out of range, a field does not exist, or shapes would differ.
  absl::Status Validate() const;
};

// A place in the endless sequence of epochs: the next batch starts at this global position of this epoch.
struct Cursor {
  uint64_t epoch = 0;
  uint64_t position = 0;  // global samples, 0 … N; N is the next epoch's 0
  friend bool operator==(const Cursor&, const Cursor&) = default;
};

}  // namespace headrace
