// Reading the boxes of an ISO base media file. The input is hostile.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "absl/types/span.h"

namespace headrace::avif {

using Bytes = absl::Span<const uint8_t>;

constexpr uint32_t Code(const char (&text)[5]) {
  uint32_t code = 0;
  for (int i = 0; i < 4; ++i) code = code << 8 | static_cast<uint8_t>(text[i]);
  return code;
}

struct Box {
  uint32_t type = 0;
  Bytes body;
};

// Takes numbers from the front of some bytes. Once there are too few, everything is 0 or empty and ok() false.
class BoxReader {
 public:
  explicit BoxReader(Bytes rest) : rest_(rest) {}
  bool ok() const { return ok_; }
  bool empty() const { return rest_.empty(); }
  Bytes rest() const { return rest_; }
  void Fail() {
    ok_ = false;
    rest_ = {};
  }

  Bytes Take(uint64_t count) {
    if (count > rest_.size()) {
      Fail();
      return {};
    }
    const Bytes taken = rest_.subspan(0, static_cast<size_t>(count));
    rest_.remove_prefix(taken.size());
    return taken;
  }
  // Big-endian; of 0 to 8 bytes.
  uint64_t Number(int bytes) {
    uint64_t value = 0;
    for (const uint8_t byte : Take(static_cast<uint64_t>(bytes))) value = value << 8 | byte;
    return value;
  }
  uint8_t U8() { return static_cast<uint8_t>(Number(1)); }
  uint16_t U16() { return static_cast<uint16_t>(Number(2)); }
  uint32_t U32() { return static_cast<uint32_t>(Number(4)); }
  // Up to a byte 0, which is taken too.
  std::string_view Text() {
    const auto* end = rest_.empty() ? nullptr : static_cast<const uint8_t*>(std::memchr(rest_.data(), 0, rest_.size()));
    if (end == nullptr) {
      Fail();
      return {};
    }
    const std::string_view text(reinterpret_cast<const char*>(rest_.data()), static_cast<size_t>(end - rest_.data()));
    rest_.remove_prefix(text.size() + 1);
    return text;
  }
  // Version and flags of a full box.
  uint8_t Version(uint32_t* flags = nullptr) {
    const uint32_t word = U32();
    if (flags != nullptr) *flags = word & 0xFFFFFF;
    return static_cast<uint8_t>(word >> 24);
  }
  void RequireVersion0() {
    if (Version() != 0) Fail();
  }
  // The head of a box, and how long its body says to be; `to_end` (of the file) may be null where that is not allowed.
  uint64_t Head(uint32_t* type, bool* to_end) {
    const size_t before = rest_.size();
    uint64_t size = U32();
    *type = U32();
    if (size == 1) size = Number(8);
    if (*type == Code("uuid")) Take(16);
    const size_t head = before - rest_.size();
    if (to_end != nullptr && (*to_end = size == 0)) return rest_.size();
    if (!ok_ || size < head) {
      Fail();
      return 0;
    }
    return size - head;
  }
  // A whole box inside another one.
  Box Next() {
    Box box;
    const uint64_t size = Head(&box.type, nullptr);
    box.body = Take(size);
    return box;
  }

 private:
  Bytes rest_;
  bool ok_ = true;
};

}  // namespace headrace::avif
