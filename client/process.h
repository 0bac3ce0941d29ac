// Which process we are, and which descriptors a forked child must not keep.
//
// A forked child shares the parent's ring and would share its sockets. Two guards, since neither
// alone is enough:
// - a page that the kernel wipes in a child (MADV_WIPEONFORK; also in a raw clone, where no handler
// runs) carries the number
//   of the process, so that a deleter needs one load to know that a batch is somebody else's;
// - a pthread_atfork handler closes our descriptors in the child, so that the daemon sees the end
// of file when the parent
//   dies, and the name of a private daemon's socket is free again when the daemon does.
#pragma once

#include <cstdint>
#include <mutex>

namespace headrace::client {

// A number that is this process's own among its forked relatives; never 0. Sets the guards up at
// the first call.
uint64_t CurrentProcess();

// Whether `process` is the number of this process. Lock-free, one load; false in a child that has
// not called CurrentProcess yet. Valid after CurrentProcess() was called once in this process or a
// parent.
bool IsCurrentProcess(uint64_t process);

// Holds off fork() while it lives, so that no child gets a descriptor that is not registered yet.
// Never held while blocking.
class ForksHeldOff {
 public:
  ForksHeldOff();
  ~ForksHeldOff();
  ForksHeldOff(const ForksHeldOff&) = delete;
  ForksHeldOff& operator=(const ForksHeldOff&) = delete;
};

// Owns a descriptor, which is closed in forked children too. -1 is "none".
class Descriptor {
 public:
  Descriptor() = default;
  Descriptor(int fd, const ForksHeldOff& held);
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept {
    const int fd = fd_;
    fd_ = other.fd_;
    other.fd_ = fd;
    return *this;
  }
  ~Descriptor() { Close(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void Close();
  // The caller's from now on: forked children keep it.
  int Release();

 private:
  int fd_ = -1;
};

}  // namespace headrace::client
