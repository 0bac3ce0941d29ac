// dataset.json as data (docs/shard_format.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/shard/dataset.h"
#include "core/shard/format.h"

namespace headrace {

inline constexpr char kManifestName[] = "dataset.json";
inline constexpr char kJournalName[] = "pack.journal";  // beside the shards until the dataset is finished (packer/journal.h)
inline constexpr int kManifestVersion = 1;

struct ShardEntry {
  uint64_t samples = 0;
  uint64_t lmdb_bytes = 0;
  Checksum128 lmdb_checksum = {};
};

// How a dataset was packed: for people and for `headrace index`; not part of its identity.
struct PackedBy {
  std::string by;      // program and version
  std::string layout;  // imagefolder, folder, list
  std::string source;  // absolute path
  uint64_t shard_bytes = 0;
  bool check = false;
  uint64_t rejected = 0, skipped = 0, damaged = 0;
  int entry_interval = kDefaultEntryInterval;  // MCUs; 0: no entry data. Of datasets older than this: the default
  bool keep_bytes = false;
  uint64_t transcoded = 0;
};

struct Manifest {
  std::vector<Field> fields;
  std::vector<uint64_t> field_bytes;  // like fields; all values of kImage and kText, 0 elsewhere
  std::vector<std::string> classes;   // UTF-8
  std::vector<ShardEntry> shards;
  PackedBy packed;

  uint64_t samples() const;
  uint64_t lmdb_bytes() const;
};

// The identity of the content: 32 hex digits.
std::string ManifestHash(const Manifest& manifest);

std::string ManifestToJson(const Manifest& manifest);
// DATA_LOSS for what is no dataset.json of this version, contradicts itself or its hash. `what` names it in messages.
absl::StatusOr<Manifest> ParseManifest(const std::string& json, const std::string& what);
// Of the dataset in `dir`; errors as Dataset::Open.
absl::StatusOr<Manifest> ReadManifest(const std::string& dir);

// "DIR/00012.lmdb", "DIR/00012.index".
std::string ShardLmdbPath(const std::string& dir, uint32_t shard);
std::string ShardIndexPath(const std::string& dir, uint32_t shard);

}  // namespace headrace
