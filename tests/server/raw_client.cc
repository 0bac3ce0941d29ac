#include "tests/server/raw_client.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "server/unix_socket.h"

namespace headrace::testing {
namespace {

constexpr int kTimeoutMs = 30000;

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "raw client: %s\n", what.c_str());
  std::abort();
}

// Fills all of it; false at the end of file. A descriptor that comes along is kept in *fd.
bool ReadAll(int socket, void* data, size_t size, UniqueFd* fd) {
  size_t done = 0;
  while (done < size) {
    pollfd entry = {socket, POLLIN, 0};
    if (poll(&entry, 1, kTimeoutMs) != 1) Die("no answer within 30 s");
    iovec part = {static_cast<char*>(data) + done, size - done};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (n <= 0) return false;
    if (const cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr && header->cmsg_type == SCM_RIGHTS) {
      int received = -1;
      std::memcpy(&received, CMSG_DATA(header), sizeof(int));
      *fd = UniqueFd(received);
    }
    done += static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

uint32_t Frame::error_code() const {
  hr_error_body fixed = {};
  if (header.type == HR_ERROR && body.size() >= sizeof(fixed)) std::memcpy(&fixed, body.data(), sizeof(fixed));
  return fixed.code;
}

std::string Frame::error_message() const {
  return header.type == HR_ERROR && body.size() >= sizeof(hr_error_body) ? body.substr(sizeof(hr_error_body)) : "";
}

std::string Bytes(uint32_t type, uint32_t id, const std::string& body, uint32_t magic) {
  return BytesOf(hr_header{magic, type, static_cast<uint32_t>(body.size()), id}) + body;
}

RawClient::RawClient(const std::string& socket) {
  absl::StatusOr<UniqueFd> fd = ConnectTo(socket);
  if (!fd.ok()) Die(fd.status().ToString());
  fd_ = *std::move(fd);
}

bool RawClient::Send(const std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = send(fd_.get(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

std::optional<Frame> RawClient::Read() {
  Frame frame;
  if (!ReadAll(fd_.get(), &frame.header, sizeof(frame.header), &frame.fd)) return std::nullopt;
  if (frame.header.magic != HR_MAGIC || frame.header.length > HR_MAX_ANSWER_BYTES) Die("a malformed answer");
  frame.body.resize(frame.header.length);
  if (!ReadAll(fd_.get(), frame.body.data(), frame.body.size(), &frame.fd)) return std::nullopt;
  return frame;
}

bool RawClient::ReadBell() {
  char byte = 0;
  UniqueFd none;
  return ReadAll(fd_.get(), &byte, 1, &none);
}

bool RawClient::Ended() {
  char byte = 0;
  UniqueFd none;
  return !ReadAll(fd_.get(), &byte, 1, &none);
}

Frame RawClient::Request(uint32_t type, const std::string& body) {
  const uint32_t id = next_id_++;
  if (!Send(Bytes(type, id, body))) Die("the daemon closed the connection");
  std::optional<Frame> answer = Read();
  if (!answer) Die("no answer but the end of file");
  if (answer->header.request_id != id) Die("an answer with another id");
  if (answer->header.type != type + HR_ANSWER && answer->header.type != HR_ERROR) Die("an answer of another type");
  return *std::move(answer);
}

hr_hello_answer RawClient::Hello() {
  return Request(HR_HELLO, BytesOf(hr_hello{HR_PROTOCOL_VERSION, 0})).As<hr_hello_answer>();
}

nlohmann::json SmallSpec(const std::string& dataset) {
  return {{"dataset", dataset},
          {"batch_size", 4},
          {"transform", {{{"name", "Resize"}, {"size", {8, 10}}}}},
          {"dtype", "uint8"}};
}

RawSession::RawSession(const std::string& socket, const nlohmann::json& spec, uint64_t epoch, uint64_t position)
    : connection_(socket) {
  const nlohmann::json body = {{"spec", spec}, {"dataset_hash", nullptr}, {"epoch", epoch}, {"position", position}};
  Frame frame = connection_.Request(HR_OPEN, body.dump());
  if (frame.header.type == HR_ERROR) Die(frame.error_message());
  answer_ = frame.As<hr_open_answer>();
  memfd_ = std::move(frame.fd);
  base_ = mmap(nullptr, answer_.memfd_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd_.get(), 0);
  if (base_ == MAP_FAILED) Die("mapping the ring");
}

RawSession::~RawSession() { munmap(base_, answer_.memfd_bytes); }

int RawSession::WaitFor(uint32_t ticket) {
  const auto find = [&] {
    for (uint32_t i = 0; i < answer_.num_slots; ++i) {
      if (control()->slots[i].ready.load() == ticket) return static_cast<int>(i);
    }
    return -1;
  };
  for (;;) {
    if (const int slot = find(); slot >= 0) return slot;
    control()->client.waiting.store(1);
    if (const int slot = find(); slot >= 0) return slot;
    if (!connection_.ReadBell()) return find();
  }
}

void RawSession::Release(int slot) {
  control()->slots[slot].released.store(control()->slots[slot].ready.load());
  if (control()->daemon.waiting.load() != 0) connection_.Send("x");
}

}  // namespace headrace::testing
