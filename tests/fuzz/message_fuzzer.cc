// The bytes of a hand-over connection, as the daemon's event loop takes them: frames, requests, doorbells.
#include <fcntl.h>
#include <sys/socket.h>

#include "server/loop/connection.h"
#include "tests/fuzz/input.h"
#include "tests/support/tiny_dataset.h"

namespace headrace {
namespace {

// Requests name the dataset as /proc/self/fd/900/packed, wherever it lies.
constexpr int kFolderFd = 900;
constexpr size_t kMaxPieceBytes = 64 << 10;

std::unique_ptr<Service> MakeService(const std::string& root) {
  const UniqueFd folder(::open(root.c_str(), O_PATH | O_CLOEXEC));
  fuzz::Check(::dup2(folder.get(), kFolderFd) == kFolderFd);
  PipelineOptions options;
  options.host_memory_bytes = 8 << 20;
  return std::make_unique<Service>(*DataRoots::Create({root}), Pipeline::Create(options));
}

// One connection from its first byte to its end. `input`: pieces that arrive apart from each other (u16 length, the bytes).
void Converse(fuzz::Input* input, Service* service, Log* log) {
  int sockets[2];
  fuzz::Check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets) == 0);
  const UniqueFd client(sockets[1]);
  UniqueFd server(sockets[0]);
  bool closed = false;
  boost::asio::io_context io{1};
  auto cold = std::make_unique<ColdPool>(1, 4);
  const Connection::Context context = {
      io, *service, *cold, *log, std::chrono::milliseconds(10000), [&](Connection*) { closed = true; }};
  const absl::StatusOr<Peer> peer = ReadPeer(server.get());
  const auto connection = std::make_shared<Connection>(context, std::move(server), *peer);
  connection->Start();
  char answers[4096];
  while (!closed) {
    if (input->empty()) {
      ::shutdown(client.get(), SHUT_WR);
    } else {
      const absl::Span<const uint8_t> piece = input->Bytes(std::min<size_t>(input->Take<uint16_t>(), kMaxPieceBytes));
      [[maybe_unused]] const ssize_t sent = ::send(client.get(), piece.data(), piece.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    io.run_one_for(std::chrono::milliseconds(1));
    io.poll();
    while (::recv(client.get(), answers, sizeof answers, MSG_DONTWAIT) > 0) {
    }
  }
  cold = nullptr;
  io.poll();  // a session that was opened meanwhile is closed
}

}  // namespace
}  // namespace headrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace;  // NOLINT
  static const headrace::testing::TinyDataset tiny({.samples = 8, .files = 2, .side_px = 8, .columns = true});
  static const std::unique_ptr<Service> service = MakeService(tiny.dir() + "/..");
  static const std::unique_ptr<Log> log = *Log::Open("", LogLevel::kError);
  fuzz::Input input(data, size);
  Converse(&input, service.get(), log.get());
  return 0;
}
