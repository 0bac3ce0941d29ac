// What is done to a batch once all of its samples are there, before it is handed out. Touches only the batch's own slot.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/slot/batch_layout.h"
#include "core/slot/slot_memory.h"

namespace headrace {

// The texts of a batch on their way: variable lengths, so they are laid out when all are known.
// values[field][place]; indexed like BatchLayout::fields, empty for fields that are no HR_TEXT.
struct BatchTexts {
  std::vector<std::vector<std::string>> values;

  // Ready for a batch of up to batch_size samples. Keeps memory.
  void Reset(const BatchLayout& layout);
};

// A sample that could not be made into its place of a batch.
struct BadSample {
  uint32_t place = 0;
  uint64_t sample = 0;
  uint32_t shard = 0;
  std::string name;    // file name, or empty
  std::string reason;  // without shard and sample
  // "shard S, sample N (name): reason"
  std::string Message() const;
};

// Removes the places `dropped` (ascending) from a batch of `count` samples: those behind move up. Returns how many are left.
uint32_t CompactBatch(const BatchLayout& layout, const std::vector<uint32_t>& dropped, uint32_t count, const SlotMemory& slot,
                      BatchTexts* texts);

// Writes the HR_TEXT fields of a batch of `count` samples: `ends` (those behind `count` repeat the last), then the bytes.
void WriteTexts(const BatchLayout& layout, const BatchTexts& texts, uint32_t count, uint8_t* slot);

// Writes the report of docs/protocol.md at layout.error_offset: JSON of at most HR_ERROR_BYTES with its NUL. Texts that are
// too long lose their beginning.
void WriteBadBatchReport(const BatchLayout& layout, const std::string& dataset, const BadSample& bad, uint8_t* slot);

}  // namespace headrace
