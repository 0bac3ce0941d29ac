// From a row of the index to a value's bytes: pread into a buffer of the decoding thread.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "core/shard/dataset.h"
#include "core/shard/verified_samples.h"

namespace headrace {

enum class Verify { kEvery, kOnce, kNever };

// Whether a value's hash need not be checked (any more). `verified`: of which samples the image's hash was found right.
bool IsTrusted(const Dataset& dataset, const SampleRow& row, int field, Verify verify, const VerifiedSamples* verified);

// One per decoding thread. Blocks on the disk.
class SampleReader {
 public:
  // The bytes of a kImage or kText value; valid until the next call. DATA_LOSS when the hash differs or the file is
  // shorter than it was, with "shard S, sample N, field F". The buffer keeps the largest size seen up to 64 MiB.
  absl::StatusOr<absl::Span<const uint8_t>> Read(const Dataset& dataset, const SampleRow& row, int field,
                                                 Verify verify, VerifiedSamples* verified);
  // Bytes [begin, end) of it, clipped to the value. Only these are read where the hash need not be checked (any more), else
  // the whole value.
  absl::StatusOr<absl::Span<const uint8_t>> ReadRange(const Dataset& dataset, const SampleRow& row, int field,
                                                      uint64_t begin, uint64_t end, Verify verify, VerifiedSamples* verified);

  // The same to `out`; inside the value.
  absl::Status ReadRangeTo(const Dataset& dataset, const SampleRow& row, int field, uint64_t begin, uint64_t end, Verify verify,
                           VerifiedSamples* verified, uint8_t* out);

  // Bytes read since the last call.
  uint64_t TakeBytesRead() { return std::exchange(bytes_read_, 0); }

 private:
  absl::StatusOr<absl::Span<const uint8_t>> ReadBytes(const Dataset& dataset, const SampleRow& row, int field, uint64_t begin,
                                                      uint64_t length);

  std::vector<uint8_t> buffer_;
  uint64_t bytes_read_ = 0;
};

// Tells the kernel that a value will be read soon (posix_fadvise WILLNEED): starts the disk, does not wait for it.
void PrefetchValue(const Dataset& dataset, const ValueLocation& location);

// "shard S, sample N (name)": how messages name a sample. Reads the name from the shard; leaves it out if that fails.
std::string DescribeSample(const Dataset& dataset, uint64_t sample);

// The value of the field `name`, or "" without such a field.
absl::StatusOr<std::string> ReadName(const Dataset& dataset, const SampleRow& row);

}  // namespace headrace
