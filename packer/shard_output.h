// Samples into shards: the writer fills one while a thread of its own completes the one before (checksum, index, disk,
// journal).
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/shard/index_file.h"
#include "core/shard/lmdb/shard_writer.h"
#include "packer/journal.h"
#include "packer/read_stage.h"
#include "packer/totals.h"

namespace headrace {

// All methods are called by one thread.
class ShardOutput {
 public:
  // Goes on behind the shards in `journal`, which belongs to the output until Finish or destruction.
  ShardOutput(const std::string& dir, const std::vector<Field>& fields, uint64_t shard_bytes, int entry_interval,
              uint64_t first_sample, Journal* journal);
  // Joins the thread; an unfinished shard's file stays behind, under a name that ends in .tmp.
  ~ShardOutput();

  // Adds a sample; `totals` receives its row. Blocks on the disk.
  absl::Status Append(ReadFileResult* file, Totals* totals);
  bool shard_is_full() const { return current_ != nullptr && current_->writer->full(); }
  bool shard_is_empty() const { return current_ == nullptr; }

  // Ends the current shard. `state`: where packing stands (all but .shard). At most two shards are being completed;
  // waits while there are more. Returns an earlier shard's error as well.
  absl::Status CloseShard(const JournalEntry& state);
  // Waits until all closed shards are on the disk and in the journal.
  absl::Status Finish();

 private:
  struct Shard {
    uint32_t number = 0;
    uint64_t first_sample = 0;
    std::unique_ptr<ShardWriter> writer;
    std::unique_ptr<IndexRows> rows;
    std::unique_ptr<EntryArea> entries;
    JournalEntry state;
  };

  absl::Status BeginShard();
  void Run();
  absl::Status Complete(Shard* shard);

  const std::string dir_;
  const std::vector<Field> fields_;
  const uint64_t shard_bytes_;
  const int entry_interval_;
  Journal* const journal_;
  uint32_t next_shard_;
  uint64_t next_sample_;
  std::unique_ptr<Shard> current_;
  SampleRow row_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<Shard> waiting_;
  bool completing_ = false, ending_ = false;
  absl::Status status_;
  std::thread thread_;
};

}  // namespace headrace
