// A client that speaks docs/protocol.md byte by byte, also wrongly.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "client/protocol.h"
#include "core/base/unique_fd.h"

namespace headrace::testing {

inline uint32_t Code(absl::StatusCode code) { return static_cast<uint32_t>(code); }

struct Frame {
  hr_header header = {};
  std::string body;
  UniqueFd fd;

  nlohmann::json json() const { return nlohmann::json::parse(body, nullptr, false); }
  // Of an error's frame; 0 of any other.
  uint32_t error_code() const;
  std::string error_message() const;
  template <typename T>
  T As() const {
    T value = {};
    if (body.size() == sizeof(T)) std::memcpy(&value, body.data(), sizeof(T));
    return value;
  }
};

std::string Bytes(uint32_t type, uint32_t id, const std::string& body, uint32_t magic = HR_MAGIC);
template <typename T>
std::string BytesOf(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

class RawClient {
 public:
  // Connects; a test fails at once if that fails.
  explicit RawClient(const std::string& socket);

  // False if the daemon has closed.
  bool Send(const std::string& bytes);
  // The next frame; nothing at the end of file. Waits 30 s at most.
  std::optional<Frame> Read();
  // A bell rang. Waits 30 s at most; nothing but bells and the end of file may arrive.
  bool ReadBell();
  // The daemon closes without another byte.
  bool Ended();

  Frame Request(uint32_t type, const std::string& body);
  Frame Request(uint32_t type, const nlohmann::json& body) { return Request(type, body.dump()); }
  hr_hello_answer Hello();

  int fd() const { return fd_.get(); }
  void Close() { fd_ = UniqueFd(); }

 private:
  UniqueFd fd_;
  uint32_t next_id_ = 100;
};

// A spec that gives batches of 4 small images.
nlohmann::json SmallSpec(const std::string& dataset);

// A session over a connection of its own, with its ring mapped.
class RawSession {
 public:
  RawSession(const std::string& socket, const nlohmann::json& spec, uint64_t epoch = 0, uint64_t position = 0);
  ~RawSession();

  const hr_open_answer& answer() const { return answer_; }
  hr_control* control() const { return static_cast<hr_control*>(base_); }
  RawClient& connection() { return connection_; }
  // Waits for the ticket as the protocol says; the slot's number, or -1 at the end of file.
  int WaitFor(uint32_t ticket);
  void Release(int slot);
  const uint8_t* slot(int i) const {
    return static_cast<const uint8_t*>(base_) + HR_CONTROL_BYTES + static_cast<uint64_t>(i) * answer_.slot_bytes;
  }

 private:
  RawClient connection_;
  hr_open_answer answer_ = {};
  UniqueFd memfd_;
  void* base_ = nullptr;
};

}  // namespace headrace::testing
