#include "packer/shard_output.h"

#include <pthread.h>
#include <unistd.h>
#include <xxhash.h>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/shard/checksum.h"
#include "core/shard/durable_file.h"

namespace headrace {
namespace {

template <typename T>
absl::Span<const uint8_t> BytesOf(const T& value) {
  return {reinterpret_cast<const uint8_t*>(&value), sizeof value};
}

absl::Span<const uint8_t> BytesOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

void SetBytes(absl::Span<const uint8_t> bytes, SampleRow::Value* value) {
  value->location.length = bytes.size();
  value->location.xxh3 = XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace

ShardOutput::ShardOutput(const std::string& dir, const std::vector<Field>& fields, uint64_t shard_bytes,
                         int entry_interval, uint64_t first_sample, Journal* journal)
    : dir_(dir),
      fields_(fields),
      shard_bytes_(shard_bytes),
      entry_interval_(entry_interval),
      journal_(journal),
      next_shard_(static_cast<uint32_t>(journal->entries().size())),
      next_sample_(first_sample),
      thread_([this] { Run(); }) {}

ShardOutput::~ShardOutput() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

absl::Status ShardOutput::BeginShard() {
  current_ = std::make_unique<Shard>();
  current_->number = next_shard_++;
  current_->first_sample = next_sample_;
  current_->rows = std::make_unique<IndexRows>(fields_);
  HEADRACE_ASSIGN_OR_RETURN(current_->entries, EntryArea::Create(ShardIndexPath(dir_, current_->number)));
  HEADRACE_ASSIGN_OR_RETURN(
      current_->writer,
      ShardWriter::Create(absl::StrCat(ShardLmdbPath(dir_, current_->number), ".tmp"), fields_, shard_bytes_));
  return absl::OkStatus();
}

absl::Status ShardOutput::Append(ReadFileResult* result, Totals* totals) {
  if (current_ == nullptr) HEADRACE_RETURN_IF_ERROR(BeginShard());
  const ReadFileResult& file = *result;
  row_.sample = next_sample_++;
  row_.image = file.image;
  row_.values.assign(fields_.size(), {});
  std::vector<absl::Span<const uint8_t>> bytes;
  size_t column = 0;
  for (size_t i = 0; i < fields_.size(); ++i) {
    SampleRow::Value& value = row_.values[i];
    if (fields_[i].kind == FieldKind::kImage) {
      bytes.push_back(file.content());
      value.location.length = file.content().size();
      value.location.xxh3 = file.xxh3;
    } else if (fields_[i].name == "label") {
      bytes.push_back(BytesOf(file.item.label));
      value.i64 = file.item.label;
    } else if (fields_[i].name == "name") {
      bytes.push_back(BytesOf(file.item.name));
      SetBytes(bytes.back(), &value);
    } else {
      std::visit([&](const auto& content) { bytes.push_back(BytesOf(content)); }, file.item.columns[column]);
      if (fields_[i].kind == FieldKind::kInt64) value.i64 = std::get<int64_t>(file.item.columns[column]);
      if (fields_[i].kind == FieldKind::kFloat64) value.f64 = std::get<double>(file.item.columns[column]);
      if (fields_[i].kind == FieldKind::kText) SetBytes(bytes.back(), &value);
      ++column;
    }
  }
  HEADRACE_RETURN_IF_ERROR(current_->writer->Append(row_.sample, bytes));
  row_.entries_offset = row_.entries_bytes = 0;
  if (!file.entries.empty()) {
    HEADRACE_RETURN_IF_ERROR(current_->entries->Append(file.tables, &result->entries, &row_));
  }
  current_->rows->Append(row_);
  totals->Add(row_);
  return absl::OkStatus();
}

absl::Status ShardOutput::CloseShard(const JournalEntry& state) {
  HEADRACE_RETURN_IF_ERROR(current_->writer->Finish());
  current_->writer.reset();
  current_->state = state;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_ == nullptr || !status_.ok(); });
  HEADRACE_RETURN_IF_ERROR(status_);
  waiting_ = std::move(current_);
  changed_.notify_all();
  return absl::OkStatus();
}

absl::Status ShardOutput::Finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return (waiting_ == nullptr && !completing_) || !status_.ok(); });
  return status_;
}

void ShardOutput::Run() {
  pthread_setname_np(pthread_self(), "pack-finish");
  while (true) {
    std::unique_ptr<Shard> shard;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ending_ || waiting_ != nullptr; });
      if (ending_) return;
      shard = std::move(waiting_);
      completing_ = true;
    }
    changed_.notify_all();
    const absl::Status status = Complete(shard.get());
    {
      std::lock_guard lock(mutex_);
      completing_ = false;
      status_ = status;
    }
    changed_.notify_all();
    if (!status.ok()) return;
  }
}

absl::Status ShardOutput::Complete(Shard* shard) {
  const std::string path = ShardLmdbPath(dir_, shard->number), temporary = absl::StrCat(path, ".tmp");
  // The checksum first: it reads what is in the page cache, while the kernel writes it to the disk.
  HEADRACE_ASSIGN_OR_RETURN(Checksum128 checksum, ChecksumFile(temporary));
  HEADRACE_RETURN_IF_ERROR(shard->rows->FillPlaces(temporary, fields_));
  HEADRACE_RETURN_IF_ERROR(SyncFile(temporary));
  HEADRACE_RETURN_IF_ERROR(RenameDurably(temporary, path));
  IndexHeader header;
  header.shard = shard->number;
  header.first_sample = shard->first_sample;
  header.lmdb_checksum = checksum;
  header.fields = fields_;
  header.entry_interval = static_cast<uint32_t>(entry_interval_);
  HEADRACE_ASSIGN_OR_RETURN(UniqueFd fd, OpenForReading(path));
  HEADRACE_ASSIGN_OR_RETURN(header.lmdb_bytes, FileSize(fd.get(), path));
  HEADRACE_RETURN_IF_ERROR(WriteIndexFile(ShardIndexPath(dir_, shard->number), header, *shard->rows,
                                          shard->entries.get()));
  shard->state.shard = {shard->rows->size(), header.lmdb_bytes, checksum};
  return journal_->Append(shard->state);
}

}  // namespace headrace
