// Fills one sample's place in a slot: row, draw, read, render. Called by decode threads.
#pragma once

#include <memory>
#include <string>

#include "core/augment/render.h"
#include "core/slot/batch_layout.h"
#include "core/batch/order.h"
#include "core/read/sample_reader.h"

namespace headrace {

// One per decoding thread.
class SampleFiller {
 public:
  // Writes sample number `place` (0 … count−1) of the batch, drawn at `position` of `epoch`, into the slot at `slot`.
  // kText fields are appended by FinishText once all samples are there.
  // The message of a failure names shard, sample, file name and reason; `sample` receives the sample's number always.
  absl::Status Fill(const SessionSpec& spec, const BatchLayout& layout, const EpochOrder& order, uint64_t epoch,
                    uint64_t position, uint32_t place, uint8_t* slot, Verify verify, VerifiedSamples* verified,
                    uint64_t* sample);

 private:
  SampleReader reader_;
  SampleRenderer renderer_;
  SampleRow row_;
  Draw draw_;
};

}  // namespace headrace
