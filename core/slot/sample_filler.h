// Fills one sample's place in a slot: row, draw, read, render. Called by decode threads and those of GPUs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/augment/render.h"
#include "core/read/sample_reader.h"
#include "core/read/shard_map.h"
#include "core/slot/batch_finish.h"
#include "core/slot/batch_layout.h"
#include "core/slot/slot_memory.h"

namespace headrace {

// One per decoding thread; not thread-safe. Blocks on the disk.
class SampleFiller {
 public:
  // Where a sample goes, and the position whose draws it gets.
  struct Target {
    SlotMemory slot;
    uint32_t place;  // 0 … batch_size−1
    uint64_t epoch, position;
    BatchTexts* texts;  // receives the sample's kText values at `place`; different places may be filled at the same time
  };

  // Writes sample number `sample` of spec.dataset to its place: image, scalars and `index`; bytes of no other place are
  // touched. A status that is not OK says the reason (DATA_LOSS: its bytes are wrong or gone; INVALID_ARGUMENT: they cannot
  // be decoded); the place holds anything then. Images that spec.known_bad knows are not read; it learns of others.
  absl::Status Fill(const SessionSpec& spec, const BatchLayout& layout, uint64_t sample, const Target& target,
                    Verify verify, VerifiedSamples* verified);

  // The GPU's way: writes everything but the image, which is added to the burst that `lane` has begun; the GPU fetches its bytes
  // where `map` (may be null) has them and their hash need not be checked. RESOURCE_EXHAUSTED: it does not fit; launch the burst and
  // call again. Any other error, whatever it says: the place is to be made by Fill.
  absl::Status AddToBurst(const SessionSpec& spec, const BatchLayout& layout, uint64_t sample, const Target& target,
                          Verify verify, VerifiedSamples* verified, const ShardMap* map, GpuLane* lane);

  // That what follows samples[place] will be added to a burst, in this order: brings what `map` (may be null) has of their index into
  // the caches.
  static void Prefetch(const Dataset& dataset, absl::Span<const uint64_t> samples, size_t place, const ShardMap* map);

  // Bytes of values read since the last call. Of an image with entry points only what its pixels need is read, once its hash
  // was checked (or need not be).
  uint64_t TakeBytesRead() { return reader_.TakeBytesRead(); }

 private:
  absl::Status FillField(const SessionSpec& spec, const BatchLayout& layout, size_t i, const Target& target,
                         Verify verify, VerifiedSamples* verified);
  absl::Status FillImage(const SessionSpec& spec, const BatchLayout& layout, size_t i, const Target& target,
                         Verify verify, VerifiedSamples* verified);
  absl::Status AddBytes(const SessionSpec& spec, int number, const ByteRange& planned, Verify verify, VerifiedSamples* verified,
                        const ShardMap* map, GpuLane* lane);
  void DrawFor(const SessionSpec& spec, const Target& target);
  // Whether there are some, whose numbers make sense.
  bool ReadEntries(const SessionSpec& spec, const HeldIndex* held = nullptr);

  SampleReader reader_;
  SampleRenderer renderer_;
  SampleRow row_;
  Draw draw_;
  ImageEntries entries_;
  std::string warning_;
  std::vector<uint8_t> staging_;  // an image on its way to GPU memory
};

// `status` of Fill as a report that names shard, sample, file and reason. Reads the sample's name.
BadSample MakeBadSample(const Dataset& dataset, uint64_t sample, uint32_t place, const absl::Status& status);

}  // namespace headrace
