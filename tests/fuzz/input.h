// What a fuzzer's input says, and what the fuzzers of files need beside it.
#pragma once

#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace headrace::fuzz {

// What must hold whatever the input is.
inline void Check(bool condition, int line = __builtin_LINE()) {
  if (condition) return;
  std::fprintf(stderr, "the check in line %d failed\n", line);
  std::abort();
}

// Taken from the front; behind the end everything is 0.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(data, size) {}

  bool empty() const { return rest_.empty(); }

  template <typename T>
  T Take() {
    T value{};
    const absl::Span<const uint8_t> bytes = Bytes(sizeof value);
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  // 0 … bound − 1.
  uint32_t Below(uint32_t bound) { return Take<uint16_t>() % bound; }
  // At most `size`.
  absl::Span<const uint8_t> Bytes(size_t size) {
    const absl::Span<const uint8_t> bytes = rest_.subspan(0, size);
    rest_.remove_prefix(bytes.size());
    return bytes;
  }

  // With all that is left: pieces of 1 … 8 bytes written over `bytes` (u16 place, u8 size − 1, the bytes).
  void Patch(std::string* bytes) {
    while (!rest_.empty() && !bytes->empty()) {
      const size_t place = Take<uint16_t>() % bytes->size();
      const absl::Span<const uint8_t> piece = Bytes(1 + Take<uint8_t>() % 8);
      std::copy_n(piece.begin(), std::min(piece.size(), bytes->size() - place), bytes->begin() + static_cast<ptrdiff_t>(place));
    }
  }

 private:
  absl::Span<const uint8_t> rest_;
};

// Makes the XXH3-64 in front of entry data or a table set right: a wrong one would hide everything behind it. `length_at`: where
// its own length stands.
inline void Seal(char* blob, size_t size, size_t length_at) {
  uint32_t length = 0;
  if (size < length_at + sizeof length) return;
  std::memcpy(&length, blob + length_at, sizeof length);
  if (length < 8 || length > size) return;
  const uint64_t hash = XXH3_64bits(blob + 8, length - 8);
  std::memcpy(blob, &hash, sizeof hash);
}
inline constexpr size_t kEntriesLengthAt = 56, kTablesLengthAt = 8;

// A file in memory whose content changes from input to input.
class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) { Check(fd_ >= 0); }
  // Opens as any other file in this process.
  std::string path() const { return absl::StrCat("/proc/self/fd/", fd_); }
  void Write(const void* data, size_t size) const {
    Check(::ftruncate(fd_, static_cast<off_t>(size)) == 0);
    Check(::pwrite(fd_, data, size, 0) == static_cast<ssize_t>(size));
  }

 private:
  const int fd_;
};

}  // namespace headrace::fuzz
