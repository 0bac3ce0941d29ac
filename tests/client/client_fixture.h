// What the client's tests share: a fake daemon in a process of its own, owners for the C
// interface's handles, and the check of a batch's contents.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/headrace.h"
#include "client/protocol.h"

namespace headrace {

// An abstract address nobody else uses.
std::string FreshAddress();

// The fake daemon listening at `address`; killed with the object.
class FakeDaemonProcess {
 public:
  FakeDaemonProcess(std::string address, std::vector<std::string> options);
  ~FakeDaemonProcess() { Kill(); }
  // kill -9, reaps, and returns how it had ended if it already had (waitpid's state).
  int Kill();
  // Waits until it ends by itself.
  int Wait();
  void Signal(int number) const;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

struct CloseClient {
  void operator()(hr_client* client) const { hr_client_close(client); }
};
struct CloseSession {
  void operator()(hr_session* session) const { hr_session_close(session); }
};
using ClientPtr = std::unique_ptr<hr_client, CloseClient>;
using SessionPtr = std::unique_ptr<hr_session, CloseSession>;

inline constexpr int kTimeoutMs = 20000;

// Fails the test when it cannot.
ClientPtr OpenClient(const std::string& address, const char* executable = nullptr,
                     std::vector<const char*> arguments = {}, int grace_ms = 0);
struct SpecOptions {
  int batch_size = 4, prefetch_factor = 2, rank = 0, world_size = 1;
};
std::string SpecJson(const SpecOptions& options = {});
SessionPtr OpenSession(hr_client* client, const std::string& spec = SpecJson(), uint64_t epoch = 0,
                       uint64_t position = 0);

// A batch and its tensors.
class Batch {
 public:
  Batch() = default;
  Batch(Batch&& other) noexcept : batch_(std::exchange(other.batch_, hr_batch{})) {}
  Batch& operator=(Batch&& other) noexcept {
    std::swap(batch_, other.batch_);
    return *this;
  }
  ~Batch() { Drop(); }
  void Drop();

  int Next(hr_session* session, int timeout_ms = kTimeoutMs);
  const hr_batch& get() const { return batch_; }
  hr_dl_managed_tensor* Take(int field) { return std::exchange(batch_.fields[field], nullptr); }
  const float* image() const { return static_cast<const float*>(batch_.fields[0]->dl_tensor.data); }
  int64_t index(uint32_t i) const {
    return static_cast<const int64_t*>(batch_.fields[3]->dl_tensor.data)[i];
  }

 private:
  hr_batch batch_{};
};

// Every field of the batch is what the fake daemon puts there for its cursor.
testing::AssertionResult IsRight(const Batch& batch);

}  // namespace headrace
