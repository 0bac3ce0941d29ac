// A small dataset in a folder of its own, packed by the packer itself, for tests of what serves datasets.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/shard/dataset.h"

namespace headrace::testing {

struct TinyDatasetOptions {
  uint64_t samples = 100;
  int files = 20;    // different JPEGs, one of them with an EXIF orientation; repeated in turn
  int side_px = 20;  // shortest side; they go up to three times that
  int classes = 5;   // sample i has the label i mod classes; 0: no labels
  bool columns = false;  // further fields: `weight` (float64, i + 0.5), `note` (text, i mod 7 letters and the number i)
  uint64_t shard_bytes = uint64_t{64} << 10;  // several shards
};

// The folder goes with the object.
class TinyDataset {
 public:
  explicit TinyDataset(const TinyDatasetOptions& options = {});
  ~TinyDataset();

  const std::string& dir() const { return dir_; }
  // Opens it anew; a test fails at once if that fails.
  std::shared_ptr<const Dataset> Open() const;
  // Overwrites bytes of the sample's image in its shard, so that its hash is wrong.
  void Damage(uint64_t sample) const;
  // Replaces the LMDB file of shard 0, and makes right whatever tells its size and checksum.
  void ReplaceShard(const std::string& lmdb) const;

 private:
  std::string root_, dir_;
};

}  // namespace headrace::testing
