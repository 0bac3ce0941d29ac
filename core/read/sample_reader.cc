#include "core/read/sample_reader.h"

#include <fcntl.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"

namespace headrace {
namespace {

// A buffer that once held more is given back: photos of any size stay below this, scans of maps and slides do not.
constexpr size_t kKeptBytes = size_t{64} << 20;

// "shard S, sample N, field F".
std::string Where(const Dataset& dataset, const SampleRow& row, int field) {
  const auto [shard, number] = dataset.Locate(row.sample);
  return absl::StrCat("shard ", shard, ", sample ", row.sample, ", field ",
                      dataset.fields()[static_cast<size_t>(field)].name);
}

// `length` bytes of the value from `begin` on.
absl::Status ReadValue(const Dataset& dataset, const SampleRow& row, int field, uint64_t begin, uint64_t length,
                       uint8_t* out) {
  const ValueLocation& location = row.values[static_cast<size_t>(field)].location;
  const int fd = dataset.shard_fd(location.shard);
  const uint64_t offset = location.offset + begin;
  if (ReadAt(fd, out, length, offset, std::string()).ok()) return absl::OkStatus();
  // Again for the message: the path is an allocation, and this runs once per sample served.
  absl::Status status = ReadAt(fd, out, length, offset, dataset.shard_path(location.shard));
  if (status.ok()) return status;
  // The row was checked against the file's size when it was opened, so a file that ends early has
  // been cut since.
  if (absl::IsOutOfRange(status)) status = absl::DataLossError(std::string(status.message()));
  return Annotate(status, Where(dataset, row, field));
}

absl::Status CheckHash(const Dataset& dataset, const SampleRow& row, int field,
                       absl::Span<const uint8_t> bytes) {
  if (XXH3_64bits(bytes.data(), bytes.size()) ==
      row.values[static_cast<size_t>(field)].location.xxh3) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(
      Where(dataset, row, field), ": the bytes differ from those that were packed (wrong hash)"));
}

// One bit per sample: it stands for the image, which is nearly all of a sample's bytes. Texts are hashed each time.
bool IsRemembered(const Dataset& dataset, int field, Verify verify, const VerifiedSamples* verified) {
  return verify == Verify::kOnce && verified != nullptr &&
         dataset.fields()[static_cast<size_t>(field)].kind == FieldKind::kImage;
}

}  // namespace

bool IsTrusted(const Dataset& dataset, const SampleRow& row, int field, Verify verify, const VerifiedSamples* verified) {
  return verify == Verify::kNever || (IsRemembered(dataset, field, verify, verified) && verified->Contains(row.sample));
}

absl::StatusOr<absl::Span<const uint8_t>> SampleReader::ReadBytes(const Dataset& dataset, const SampleRow& row, int field,
                                                                  uint64_t begin, uint64_t length) {
  if (buffer_.size() > kKeptBytes && length <= kKeptBytes) {
    buffer_.resize(kKeptBytes);
    buffer_.shrink_to_fit();
  }
  if (buffer_.size() < length) buffer_.resize(length);
  HEADRACE_RETURN_IF_ERROR(ReadValue(dataset, row, field, begin, length, buffer_.data()));
  bytes_read_ += length;
  return absl::MakeConstSpan(buffer_.data(), length);
}

absl::StatusOr<absl::Span<const uint8_t>> SampleReader::Read(const Dataset& dataset, const SampleRow& row, int field,
                                                             Verify verify, VerifiedSamples* verified) {
  const uint64_t length = row.values[static_cast<size_t>(field)].location.length;
  HEADRACE_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> bytes, ReadBytes(dataset, row, field, 0, length));
  if (IsTrusted(dataset, row, field, verify, verified)) return bytes;
  HEADRACE_RETURN_IF_ERROR(CheckHash(dataset, row, field, bytes));
  if (IsRemembered(dataset, field, verify, verified)) verified->Insert(row.sample);
  return bytes;
}

absl::StatusOr<absl::Span<const uint8_t>> SampleReader::ReadRange(const Dataset& dataset, const SampleRow& row, int field,
                                                                  uint64_t begin, uint64_t end, Verify verify,
                                                                  VerifiedSamples* verified) {
  end = std::min(end, row.values[static_cast<size_t>(field)].location.length);
  begin = std::min(begin, end);
  if (IsTrusted(dataset, row, field, verify, verified)) return ReadBytes(dataset, row, field, begin, end - begin);
  HEADRACE_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> bytes, Read(dataset, row, field, verify, verified));
  return bytes.subspan(begin, end - begin);
}

absl::Status SampleReader::ReadRangeTo(const Dataset& dataset, const SampleRow& row, int field, uint64_t begin, uint64_t end,
                                       Verify verify, VerifiedSamples* verified, uint8_t* out) {
  if (IsTrusted(dataset, row, field, verify, verified)) {
    HEADRACE_RETURN_IF_ERROR(ReadValue(dataset, row, field, begin, end - begin, out));
    bytes_read_ += end - begin;
    return absl::OkStatus();
  }
  HEADRACE_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> bytes, Read(dataset, row, field, verify, verified));
  std::memcpy(out, bytes.data() + begin, end - begin);
  return absl::OkStatus();
}

void PrefetchValue(const Dataset& dataset, const ValueLocation& location) {
  // Advice only: if it fails the read is merely slower, and reports what is wrong.
  (void)::posix_fadvise(dataset.shard_fd(location.shard), static_cast<off_t>(location.offset),
                        static_cast<off_t>(location.length), POSIX_FADV_WILLNEED);
}

std::string DescribeSample(const Dataset& dataset, uint64_t sample) {
  std::string text = absl::StrCat("shard ", dataset.Locate(sample).first, ", sample ", sample);
  SampleRow row;
  if (!dataset.ReadRow(sample, &row).ok()) return text;
  const absl::StatusOr<std::string> name = ReadName(dataset, row);
  if (name.ok() && !name->empty()) absl::StrAppend(&text, " (", *name, ")");
  return text;
}

absl::StatusOr<std::string> ReadName(const Dataset& dataset, const SampleRow& row) {
  const int field = dataset.FindField("name");
  if (field < 0 || dataset.fields()[static_cast<size_t>(field)].kind != FieldKind::kText)
    return std::string();
  std::string name(row.values[static_cast<size_t>(field)].location.length, '\0');
  auto* bytes = reinterpret_cast<uint8_t*>(name.data());
  HEADRACE_RETURN_IF_ERROR(ReadValue(dataset, row, field, 0, name.size(), bytes));
  HEADRACE_RETURN_IF_ERROR(CheckHash(dataset, row, field, absl::MakeConstSpan(bytes, name.size())));
  return name;
}

}  // namespace headrace
