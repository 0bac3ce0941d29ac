// A dataset opened for serving: DIR/dataset.json, and per shard NNNNN.lmdb and NNNNN.index (docs/shard_format.md).
// Nothing is mapped here: rows and bytes are read with pread, so a truncated file or a failing disk is a status.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/base/unique_fd.h"
#include "core/decode/entry/entry_data.h"

namespace headrace {

enum class FieldKind : uint32_t {
  kImage = 1,    // an image file, byte for byte
  kInt64 = 2,    // a scalar, kept in the index row
  kFloat64 = 3,  // a scalar, kept in the index row
  kText = 4,     // UTF-8, variable length
};

struct Field {
  std::string name;  // `image`, `label`, `name`, or a column of --list
  FieldKind kind;
  uint64_t max_bytes;  // longest value of the dataset (kImage, kText)
};

enum class ImageFormat : uint8_t { kUnknown = 0, kJpeg = 1, kPng = 2, kWebp = 3, kGif = 4, kBmp = 5, kTiff = 6, kAvif = 7 };

// As people write it: "JPEG", "WebP".
const char* FormatName(ImageFormat format);

// What the index says of an image. Sizes are as stored, before orientation.
struct ImageInfo {
  ImageFormat format = ImageFormat::kUnknown;
  uint32_t width = 0, height = 0;  // px
  uint8_t orientation = 1;         // EXIF, 1 … 8
  uint8_t components = 3;          // channels in the file
  uint8_t sampling[4] = {};        // JPEG: per component h << 4 | v; 0 elsewhere
  bool progressive = false;
  bool damaged = false;  // its library warned while packing (--check)
  bool transcoded = false;  // was progressive, arithmetic-coded or of several scans; pixels are the same

  bool swaps_axes() const { return orientation >= 5; }
  uint32_t oriented_width() const { return swaps_axes() ? height : width; }
  uint32_t oriented_height() const { return swaps_axes() ? width : height; }
};

// Where a variable-length value lies.
struct ValueLocation {
  uint32_t shard = 0;
  uint64_t offset = 0;  // in the shard's LMDB file
  uint64_t length = 0;  // bytes
  uint64_t xxh3 = 0;    // XXH3-64 of the value
};

// One sample's row of the index. Indexed like Dataset::fields().
struct SampleRow {
  uint64_t sample = 0;
  ImageInfo image;  // of the field `image`
  struct Value {
    ValueLocation location;  // kImage, kText
    int64_t i64 = 0;         // kInt64
    double f64 = 0;          // kFloat64
  };
  std::vector<Value> values;
  // Where the image's entry data lies, from the beginning of the index file's entry area; 0 bytes: none.
  uint64_t entries_offset = 0, entries_bytes = 0;
};

// The entry data of one image, for core/decode/segment. Keeps its memory between calls: a decoding thread has one.
class ImageEntries {
 public:
  ImageEntries() = default;
  ImageEntries(const ImageEntries&) = delete;
  ImageEntries& operator=(const ImageEntries&) = delete;

  // Both of the last Dataset::ReadEntries that returned true, until the next.
  const EntryView& view() const { return view_; }
  const JpegFrame& frame() const { return frame_; }  // view().frame() with its tables
  // Which table set of the dataset these are: images that share one have the same number, not 0.
  uint64_t tables_number() const { return tables_number_; }

 private:
  friend class Dataset;
  std::vector<uint8_t> bytes_;  // what the view looks at, unless the index is held in memory
  uint64_t tables_number_ = 0;
  EntryView view_;
  JpegFrame frame_;
};

// Where the fields' parts lie in a row of the index (core/shard/format.h).
struct RowLayout {
  std::vector<FieldKind> kinds;
  std::vector<uint32_t> offsets;
  uint32_t row_bytes = 0;
};

class HeldIndex;
class TableCache;

// Thread-safe after Open; immutable. Files stay open for the object's life, so a dataset that is replaced or deleted
// meanwhile goes on being served as it was.
class Dataset {
 public:
  ~Dataset();

  // Opens DIR. O(number of shards): no row is read. NOT_FOUND without a dataset.json ("… is not a dataset (no
  // dataset.json); make one with `headrace pack SRC DIR`"), DATA_LOSS where files contradict each other.
  static absl::StatusOr<std::shared_ptr<const Dataset>> Open(const std::string& dir);

  const std::string& dir() const { return dir_; }
  // Identity of the content (schema, counts, per-shard checksums): 32 hex digits. Equal packs have equal hashes.
  const std::string& hash() const { return hash_; }
  uint64_t size() const { return size_; }  // samples
  uint32_t num_shards() const { return static_cast<uint32_t>(shards_.size()); }
  const std::vector<Field>& fields() const { return fields_; }
  // Index in fields(), or -1.
  int FindField(const std::string& name) const;
  const std::vector<std::string>& classes() const { return classes_; }

  // One pread. The row is checked against its checksum and the shard's size; DATA_LOSS names shard and sample.
  // `row` is reused without allocating once it has its size. From `held`, where that has the row, without a pread.
  absl::Status ReadRow(uint64_t sample, SampleRow* row, const HeldIndex* held = nullptr) const;

  // The entry data of the image in `row` (of ReadRow). True: `entries` has been filled. False: the image has none (no
  // JPEG, or one that cannot be decoded from within, or a dataset without entry data); decode it with its library.
  // DATA_LOSS naming shard and sample: the entry data is damaged, cut off, or of another image than the row describes; the
  // image itself may be whole. Whatever the bytes are, what `entries` gives stays inside the bounds that entry_data.h
  // states, and the scan inside the image's bytes. One pread of about 3 % of the image's size, and one more where tables
  // are shared with an earlier image and were not used lately; or none, and `entries` points into `held`, where that has them.
  // Allocates only for entry data larger than any before.
  absl::StatusOr<bool> ReadEntries(const SampleRow& row, ImageEntries* entries, const HeldIndex* held = nullptr) const;
  // Tells the kernel that ReadEntries will come (posix_fadvise WILLNEED); does not wait.
  void PrefetchEntries(const SampleRow& row) const;
  // Brings what `held` has of a sample into the caches: first its row, then, when that is there, its entry data.
  void PrefetchRow(uint64_t sample, const HeldIndex& held) const;
  void PrefetchEntries(uint64_t sample, const HeldIndex& held) const;

  int shard_fd(uint32_t shard) const { return shards_[shard].lmdb.get(); }
  std::string shard_path(uint32_t shard) const;
  // (shard, sample's number within it)
  std::pair<uint32_t, uint64_t> Locate(uint64_t sample) const;
  uint64_t shard_bytes(uint32_t shard) const { return shards_[shard].lmdb_bytes; }
  uint64_t all_shard_bytes() const;
  int index_fd(uint32_t shard) const { return shards_[shard].index.get(); }
  uint64_t index_bytes(uint32_t shard) const { return shards_[shard].index_bytes; }
  uint64_t all_index_bytes() const;
  uint64_t shard_first_sample(uint32_t shard) const { return shards_[shard].first_sample; }

 private:
  friend class DatasetOpener;
  struct Shard {
    UniqueFd lmdb, index;
    uint64_t first_sample, num_samples, lmdb_bytes, index_bytes, rows_offset, entries_offset, entries_bytes;
  };
  Dataset();
  // Row `within` of shard `number`, where `held` has it.
  absl::Span<const uint8_t> HeldRow(uint32_t number, uint64_t within, const HeldIndex* held) const;
  absl::Status TryReadEntries(const Shard& shard, uint32_t number, const SampleRow& row, const HeldIndex* held,
                              ImageEntries* entries) const;
  absl::Status ReadSharedTables(uint32_t number, uint64_t tables_offset, const HeldIndex* held, JpegFrame* frame) const;

  std::string dir_, hash_;
  uint64_t size_ = 0;
  std::vector<Field> fields_;
  std::vector<std::string> classes_;
  std::vector<Shard> shards_;
  RowLayout layout_;
  int image_field_ = -1;
  std::unique_ptr<TableCache> tables_;
};

}  // namespace headrace
