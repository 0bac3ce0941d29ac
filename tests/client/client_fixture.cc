#include "tests/client/client_fixture.h"

#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "tests/support/fake_daemon.h"

namespace headrace {
namespace {

constexpr int64_t kPixelStep = TEST_SLOWDOWN > 1 ? 89 : 1;  // a sanitizer makes each look dear

}  // namespace

std::string FreshAddress() {
  static std::atomic<int> number{0};
  return "@headrace-test-" + std::to_string(getpid()) + "-" + std::to_string(number++);
}

FakeDaemonProcess::FakeDaemonProcess(std::string address, std::vector<std::string> options) {
  std::vector<std::string> words = {FAKE_DAEMON, "--socket", std::move(address)};
  words.insert(words.end(), options.begin(), options.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int error = posix_spawn(&pid_, argv[0], nullptr, nullptr, argv.data(), environ);
  if (error != 0) ADD_FAILURE() << "posix_spawn: " << strerror(error);
}

int FakeDaemonProcess::Kill() {
  if (pid_ < 0) return 0;
  kill(pid_, SIGKILL);
  return Wait();
}

int FakeDaemonProcess::Wait() {
  int state = 0;
  waitpid(pid_, &state, 0);
  pid_ = -1;
  return state;
}

void FakeDaemonProcess::Signal(int number) const { kill(pid_, number); }

ClientPtr OpenClient(const std::string& address, const char* executable,
                     std::vector<const char*> arguments, int grace_ms) {
  arguments.push_back(nullptr);
  const hr_connect_options options = {address.c_str(), executable, arguments.data(), grace_ms};
  hr_client* client = nullptr;
  EXPECT_EQ(hr_client_open(&options, kTimeoutMs, &client), HR_OK) << hr_last_error();
  return ClientPtr(client);
}

std::string SpecJson(const SpecOptions& options) {
  return "{\"dataset\": \"/fake\", \"batch_size\": " + std::to_string(options.batch_size) +
         ", \"prefetch_factor\": " + std::to_string(options.prefetch_factor) +
         ", \"rank\": " + std::to_string(options.rank) +
         ", \"world_size\": " + std::to_string(options.world_size) + "}";
}

SessionPtr OpenSession(hr_client* client, const std::string& spec, uint64_t epoch,
                       uint64_t position) {
  hr_session* session = nullptr;
  EXPECT_EQ(hr_session_open(client, spec.c_str(), nullptr, epoch, position, kTimeoutMs, &session),
            HR_OK)
      << hr_last_error();
  return SessionPtr(session);
}

void Batch::Drop() {
  for (uint32_t i = 0; i < batch_.num_fields; ++i) {
    if (batch_.fields[i] != nullptr) batch_.fields[i]->deleter(batch_.fields[i]);
  }
  batch_ = {};
}

int Batch::Next(hr_session* session, int timeout_ms) {
  Drop();
  return hr_session_next(session, &batch_, timeout_ms);
}

testing::AssertionResult IsRight(const Batch& owner) {
  const hr_batch& batch = owner.get();
  const auto wrong = [&] {
    return testing::AssertionFailure()
           << "batch at " << batch.epoch << ", " << batch.position << ": ";
  };
  if (batch.num_fields != 4) return wrong() << batch.num_fields << " fields";
  const hr_dl_tensor& image = batch.fields[0]->dl_tensor;
  const hr_dl_tensor& text = batch.fields[2]->dl_tensor;
  const auto* labels = static_cast<const int64_t*>(batch.fields[1]->dl_tensor.data);
  const auto* ends = static_cast<const uint32_t*>(text.data);
  const int64_t capacity = text.shape[0] / 20;  // 4 bytes of end and 16 of text each
  const auto* texts = static_cast<const char*>(text.data) + 4 * capacity;
  if (image.shape[0] != batch.length || batch.fields[1]->dl_tensor.shape[0] != batch.length)
    return wrong() << "length";
  for (uint32_t i = 0; i < batch.length; ++i) {
    const int64_t sample = owner.index(i);
    if (i > 0 && sample != owner.index(i - 1) + 1)
      return wrong() << "index " << i << " is " << sample;
    if (labels[i] != 10 * sample) return wrong() << "label of " << sample << " is " << labels[i];
    const uint32_t begin = i == 0 ? 0 : ends[i - 1];
    const std::string name(texts + begin, ends[i] - begin);
    if (name != "s" + std::to_string(sample))
      return wrong() << "name of " << sample << " is " << name;
    const float expected = fake::PixelOf(batch.epoch, static_cast<uint64_t>(sample));
    const float* pixels = owner.image() + i * fake::kImageElements;
    for (int64_t k = 0; k < fake::kImageElements; k += kPixelStep) {
      if (pixels[k] != expected)
        return wrong() << "pixel " << k << " of " << sample << " is " << pixels[k];
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace headrace
