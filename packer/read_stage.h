// Reads and probes files on several threads, and hands them out in the source's order.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "packer/source.h"

namespace headrace {

// What tells a file from a changed one. Zero where there is no file.
struct FileStamp {
  uint64_t size = 0;     // bytes
  int64_t mtime_ns = 0;  // of the last change
};
// Of what `path` leads to.
FileStamp StampOf(const std::string& path);

// A file read, or an item for the report (not is_packed()).
struct ReadFileResult {
  SourceItem item;
  FileStamp stamp;
  std::vector<uint8_t> bytes;  // what is packed, and old bytes behind it
  uint64_t length = 0;         // of what is packed: `stamp.size` unless it was transcoded
  ImageInfo image;
  uint64_t xxh3 = 0;  // XXH3-64 of what is packed
  std::string tables, entries;  // entry data (EntryMaker)
  uint64_t held_bytes = 0;  // memory that the stage counts for this result until Recycle

  absl::Span<const uint8_t> content() const { return {bytes.data(), length}; }
  bool is_packed() const {
    return item.verdict != Verdict::kRejected && item.verdict != Verdict::kSkipped && item.verdict != Verdict::kWarning;
  }
};

struct ReadStageOptions {
  int threads = 1;
  bool check = false;  // decode every image
  // At most so many files, and bytes of files, lie between the source and Recycle. One file may be larger.
  size_t max_files = 512;
  uint64_t max_bytes = uint64_t{48} << 20;
  int entry_interval = 0;  // MCUs per entry point; 0: no entry data
  bool keep_bytes = false;  // transcode nothing
};

// Files above this size are rejected unread.
inline constexpr uint64_t kMaxFileBytes = uint64_t{512} << 20;

class ReadStage {
 public:
  // `source` is used by the stage's threads until destruction. Starts them.
  ReadStage(const ReadStageOptions& options, Source* source);
  // Stops and joins; waits for reads under way.
  ~ReadStage();

  // Waits for the next item; false behind the last. The source's own error comes where its item would.
  absl::StatusOr<bool> Next(ReadFileResult* result);
  // Gives a result's memory back for another file. Must follow each Next that gave one.
  void Recycle(ReadFileResult&& result);

 private:
  struct Slot {
    bool ready = false;
    ReadFileResult result;
  };
  class Worker;

  void Run(int number);
  // Takes the next item and its number; false at the end or when stopping.
  bool Take(SourceItem* item, uint64_t* number);
  // Waits for room for a file, in the order of numbers, so that an earlier file never waits for a later one's memory.
  bool Admit(uint64_t number, uint64_t bytes, ReadFileResult* result);
  void Deliver(uint64_t number, ReadFileResult&& result);

  const ReadStageOptions options_;
  Source* const source_;

  std::mutex large_mutex_;  // of the EntryMakers
  std::mutex source_mutex_;  // held while the source reads a folder; taken before mutex_

  std::mutex mutex_;
  std::condition_variable changed_;    // room, admission, stop: for the workers
  std::condition_variable delivered_;  // for Next
  std::vector<Slot> slots_;            // item n lies in slot n mod size
  uint64_t taken_ = 0;                 // items taken from the source
  uint64_t admitted_ = 0;              // the first item that was not admitted yet
  uint64_t consumed_ = 0;              // items handed out
  uint64_t bytes_held_ = 0, bytes_free_ = 0;
  bool source_ended_ = false, stopping_ = false;
  absl::Status source_status_;
  std::vector<std::vector<uint8_t>> free_buffers_;
  std::vector<std::thread> threads_;
};

}  // namespace headrace
