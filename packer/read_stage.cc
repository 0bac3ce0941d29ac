#include "packer/read_stage.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/decode/image_decoder.h"
#include "core/decode/probe.h"
#include "packer/entry_maker.h"

namespace headrace {
namespace {

// Larger buffers go back to the system, so that one huge file does not stay in memory.
constexpr size_t kMaxRecycledBytes = size_t{4} << 20;
constexpr size_t kMaxFreeBytes = size_t{16} << 20;

FileStamp StampOf(const struct stat& info) {
  return {static_cast<uint64_t>(info.st_size), info.st_mtim.tv_sec * int64_t{1'000'000'000} + info.st_mtim.tv_nsec};
}

void Reject(ReadFileResult* result, Verdict verdict, const std::string& reason) {
  result->item.verdict = verdict;
  result->item.reason = reason;
}

}  // namespace

FileStamp StampOf(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 ? StampOf(info) : FileStamp{};
}

// What one thread does with one file.
class ReadStage::Worker {
 public:
  explicit Worker(ReadStage* stage)
      : stage_(stage), entry_maker_({stage->options_.entry_interval, stage->options_.check}, &stage->large_mutex_) {}

  // Fills `result`, whose item is set. False when the stage is stopping.
  bool Read(uint64_t number, ReadFileResult* result) {
    UniqueFd fd;
    if (result->item.verdict == Verdict::kPacked) fd = Open(result);
    // Every item passes here, those without bytes as well: admission goes by the number.
    if (!stage_->Admit(number, fd.valid() ? result->stamp.size : 0, result)) return false;
    if (!fd.valid()) return true;
    if (result->bytes.size() < result->stamp.size) result->bytes.resize(result->stamp.size);
    result->length = result->stamp.size;
    const absl::Status read = ReadAt(fd.get(), result->bytes.data(), result->stamp.size, 0, "the file");
    if (!read.ok()) {
      Reject(result, Verdict::kRejected, std::string(read.message()));
      return true;
    }
    absl::StatusOr<ImageInfo> image = ProbeImage(result->content());
    if (!image.ok()) {
      Reject(result, Verdict::kRejected, std::string(image.status().message()));
      return true;
    }
    result->image = *image;
    if (stage_->options_.check) Check(result);
    if (!result->is_packed()) return true;
    if (!stage_->options_.keep_bytes && result->item.verdict == Verdict::kPacked) Transcode(result);
    const absl::Status entries =
        entry_maker_.Make(result->content(), result->image, &result->tables, &result->entries);
    if (!entries.ok()) {
      result->item.verdict = Verdict::kNoEntries;
      result->item.reason = std::string(entries.message());
    }
    result->xxh3 = XXH3_64bits(result->bytes.data(), result->length);
    return true;
  }

 private:
  static UniqueFd Open(ReadFileResult* result) {
    // O_NONBLOCK: a pipe under an image's name must not stop the packer.
    UniqueFd fd(::open(result->item.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat info;
    if (!fd.valid() || ::fstat(fd.get(), &info) != 0) {
      const bool broken = errno == ENOENT || errno == ELOOP || errno == ENOTDIR || errno == ENXIO;
      Reject(result, broken ? Verdict::kSkipped : Verdict::kRejected, absl::StrCat("cannot open: ", strerror(errno)));
      result->stamp = StampOf(result->item.path);
      return UniqueFd();
    }
    result->stamp = StampOf(info);
    if (!S_ISREG(info.st_mode)) {
      Reject(result, Verdict::kSkipped, "not a regular file");
      return UniqueFd();
    }
    if (result->stamp.size > kMaxFileBytes) {
      Reject(result, Verdict::kRejected, absl::StrCat("larger than ", kMaxFileBytes >> 20, " MiB"));
      return UniqueFd();
    }
    return fd;
  }

  void Check(ReadFileResult* result) {
    const ImageInfo& image = result->image;
    const Rect all{0, 0, static_cast<int>(image.height), static_cast<int>(image.width)};
    std::string warning;
    const absl::Status decoded = decoder_.Decode(result->content(), image, all, &pixels_, &warning);
    if (!decoded.ok()) {
      Reject(result, Verdict::kRejected, std::string(decoded.message()));
    } else if (!warning.empty()) {
      result->image.damaged = true;
      result->item.verdict = Verdict::kDamaged;
      result->item.reason = warning;
    }
  }

  void Transcode(ReadFileResult* result) {
    const std::string process = entry_maker_.Transcode(result->content(), &result->image, &transcoded_);
    if (process.empty()) return;
    result->bytes.swap(transcoded_);
    result->length = result->bytes.size();
    result->item.verdict = Verdict::kTranscoded;
    result->item.reason = process;
  }

  ReadStage* const stage_;
  std::vector<uint8_t> transcoded_;
  EntryMaker entry_maker_;
  ImageDecoder decoder_;
  RgbImage pixels_;
};

ReadStage::ReadStage(const ReadStageOptions& options, Source* source)
    : options_(options), source_(source), slots_(options.max_files) {
  for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this, i] { Run(i); });
}

ReadStage::~ReadStage() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ReadStage::Run(int number) {
  pthread_setname_np(pthread_self(), absl::StrCat("pack-read-", number).c_str());
  Worker worker(this);
  uint64_t item_number;
  while (true) {
    ReadFileResult result;
    if (!Take(&result.item, &item_number) || !worker.Read(item_number, &result)) return;
    Deliver(item_number, std::move(result));
  }
}

bool ReadStage::Take(SourceItem* item, uint64_t* number) {
  std::lock_guard source_lock(source_mutex_);
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopping_ || source_ended_ || taken_ - consumed_ < slots_.size(); });
    if (stopping_ || source_ended_) return false;
  }
  const absl::StatusOr<bool> more = source_->Next(item);
  std::lock_guard lock(mutex_);
  if (!more.ok() || !*more) {
    source_status_ = more.status();
    source_ended_ = true;
    delivered_.notify_all();
    return false;
  }
  *number = taken_++;
  return true;
}

bool ReadStage::Admit(uint64_t number, uint64_t bytes, ReadFileResult* result) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return stopping_ || (admitted_ == number && (bytes_held_ == 0 || bytes_held_ + bytes <= options_.max_bytes));
  });
  if (stopping_) return false;
  admitted_ = number + 1;
  if (bytes > 0 && !free_buffers_.empty()) {
    result->bytes = std::move(free_buffers_.back());
    free_buffers_.pop_back();
    bytes_free_ -= result->bytes.size();
  }
  // A recycled buffer may be larger than the file: its memory counts.
  result->held_bytes = std::max<uint64_t>(bytes, result->bytes.size());
  bytes_held_ += result->held_bytes;
  lock.unlock();
  changed_.notify_all();
  return true;
}

void ReadStage::Deliver(uint64_t number, ReadFileResult&& result) {
  std::lock_guard lock(mutex_);
  Slot& slot = slots_[number % slots_.size()];
  if (result.bytes.size() > result.held_bytes) {  // transcoded
    bytes_held_ += result.bytes.size() - result.held_bytes;
    result.held_bytes = result.bytes.size();
  }
  slot.result = std::move(result);
  slot.ready = true;
  if (number == consumed_) delivered_.notify_all();
}

absl::StatusOr<bool> ReadStage::Next(ReadFileResult* result) {
  std::unique_lock lock(mutex_);
  Slot& slot = slots_[consumed_ % slots_.size()];
  delivered_.wait(lock, [&] { return slot.ready || (source_ended_ && consumed_ == taken_); });
  if (!slot.ready) {
    HEADRACE_RETURN_IF_ERROR(source_status_);
    return false;
  }
  *result = std::move(slot.result);
  slot = {};
  ++consumed_;
  lock.unlock();
  changed_.notify_all();
  return true;
}

void ReadStage::Recycle(ReadFileResult&& result) {
  std::vector<uint8_t> bytes = std::move(result.bytes);
  {
    std::lock_guard lock(mutex_);
    bytes_held_ -= std::exchange(result.held_bytes, 0);
    if (bytes.size() <= kMaxRecycledBytes && bytes_free_ + bytes.size() <= kMaxFreeBytes && !bytes.empty()) {
      bytes_free_ += bytes.size();
      free_buffers_.push_back(std::move(bytes));
    }
  }
  changed_.notify_all();
}

}  // namespace headrace
