#include "core/shard/index_file.h"

#include <xxhash.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/shard/durable_file.h"
#include "core/shard/lmdb/shard_scanner.h"

namespace headrace {

void IndexRows::Append(const SampleRow& row) {
  const size_t at = rows_.size();
  rows_.resize(at + layout_.row_bytes);
  EncodeRow(layout_, row, reinterpret_cast<uint8_t*>(rows_.data()) + at);
}

absl::Status IndexRows::FillPlaces(const std::string& lmdb_path, const std::vector<Field>& fields) {
  HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<ShardScanner> scanner, ShardScanner::Open(lmdb_path, fields));
  // No limits: the rows are ours, only their places are not known yet.
  std::vector<Field> unlimited = fields;
  for (Field& field : unlimited) field.max_bytes = UINT64_MAX;
  const RowLimits limits{UINT64_MAX, UINT64_MAX, &unlimited};
  SampleRow row;
  for (uint64_t i = 0; i < size(); ++i) {
    uint8_t* encoded = reinterpret_cast<uint8_t*>(rows_.data()) + i * layout_.row_bytes;
    HEADRACE_ASSIGN_OR_RETURN(bool more, scanner->Next());
    const absl::Status decoded =
        more ? DecodeRow(layout_, limits, scanner->sample(), encoded, &row) : absl::DataLossError("missing");
    HEADRACE_RETURN_IF_ERROR(Annotate(decoded, absl::StrCat(lmdb_path, ", value ", i)));
    for (size_t f = 0; f < fields.size(); ++f) {
      if (!HasLocation(fields[f].kind)) continue;
      const ScannedValue& value = scanner->values()[f];
      if (value.length != row.values[f].location.length) {
        return absl::DataLossError(absl::StrCat(lmdb_path, ", sample ", row.sample, ": field `", fields[f].name,
                                                "` has ", value.length, " bytes instead of ",
                                                row.values[f].location.length));
      }
      SetValueOffset(layout_, static_cast<int>(f), value.offset, encoded);
    }
    SealRow(layout_, encoded);
  }
  HEADRACE_ASSIGN_OR_RETURN(bool more, scanner->Next());
  if (more) return absl::DataLossError(absl::StrCat(lmdb_path, " holds more than ", size(), " samples"));
  return absl::OkStatus();
}

absl::StatusOr<IndexHeader> ReadIndexHeader(int fd, uint64_t index_bytes, const std::string& path) {
  std::vector<uint8_t> preamble(kIndexHeaderBytes);
  HEADRACE_RETURN_IF_ERROR(ReadAt(fd, preamble.data(), preamble.size(), 0, path));
  const absl::StatusOr<uint32_t> bytes = IndexPreambleBytes(preamble);
  HEADRACE_RETURN_IF_ERROR(Annotate(bytes.status(), path));
  preamble.resize(*bytes);
  HEADRACE_RETURN_IF_ERROR(ReadAt(fd, preamble.data(), preamble.size(), 0, path));
  absl::StatusOr<IndexHeader> header = DecodeIndexHeader(preamble, index_bytes);
  HEADRACE_RETURN_IF_ERROR(Annotate(header.status(), path));
  return header;
}

absl::Status CheckEntryArea(const std::string& path, const IndexHeader& header) {
  HEADRACE_ASSIGN_OR_RETURN(UniqueFd fd, OpenForReading(path));
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(), &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  std::vector<uint8_t> block(std::min<uint64_t>(header.entries_bytes, uint64_t{1} << 20));
  for (uint64_t done = 0; done < header.entries_bytes;) {
    const uint64_t n = std::min<uint64_t>(header.entries_bytes - done, block.size());
    HEADRACE_RETURN_IF_ERROR(ReadAt(fd.get(), block.data(), n, header.entries_offset() + done, path));
    XXH3_64bits_update(state.get(), block.data(), n);
    done += n;
  }
  if (XXH3_64bits_digest(state.get()) == header.entries_checksum) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(path, ": the entry data does not match its checksum (`headrace index` makes it anew)"));
}

absl::Status VisitIndexRows(const std::string& path, const IndexHeader& header, const std::vector<Field>& fields,
                            const std::function<void(const absl::Status&, const SampleRow&)>& visit) {
  HEADRACE_ASSIGN_OR_RETURN(UniqueFd fd, OpenForReading(path));
  const RowLayout layout = MakeRowLayout(fields);
  const RowLimits limits{header.lmdb_bytes, header.entries_bytes, &fields};
  constexpr uint64_t kBlockRows = 4096;
  std::vector<uint8_t> block(kBlockRows * layout.row_bytes);
  SampleRow row;
  for (uint64_t first = 0; first < header.num_samples; first += kBlockRows) {
    const uint64_t rows = std::min(kBlockRows, header.num_samples - first);
    HEADRACE_RETURN_IF_ERROR(ReadAt(fd.get(), block.data(), rows * layout.row_bytes,
                                    header.rows_offset() + first * layout.row_bytes, path));
    for (uint64_t i = 0; i < rows; ++i) {
      const uint64_t sample = header.first_sample + first + i;
      const absl::Status status = DecodeRow(layout, limits, sample, block.data() + i * layout.row_bytes, &row);
      row.sample = sample;
      for (SampleRow::Value& value : row.values) value.location.shard = header.shard;
      visit(status, row);
    }
  }
  return absl::OkStatus();
}

absl::Status WriteIndexFile(const std::string& path, const IndexHeader& header, const IndexRows& rows,
                            EntryArea* entries) {
  IndexHeader complete = header;
  complete.num_samples = rows.size();
  if (entries != nullptr) HEADRACE_RETURN_IF_ERROR(entries->Flush());
  complete.entries_bytes = entries != nullptr ? entries->size() : 0;
  complete.entries_checksum = entries != nullptr ? entries->checksum() : XXH3_64bits(nullptr, 0);
  const std::string preamble = EncodeIndexHeader(complete);
  return WriteFileDurably(path, {&preamble, &rows.encoded()}, entries != nullptr ? entries->fd() : -1,
                          complete.entries_bytes);
}

}  // namespace headrace
