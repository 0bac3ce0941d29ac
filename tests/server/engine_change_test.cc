// engine = "auto" while it runs, by the client library and a daemon with fake GPUs.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "client/headrace.h"
#include "client/protocol.h"
#include "tests/server/raw_client.h"
#include "tests/support/embedded_daemon.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/tiny_dataset.h"

namespace headrace::testing {
namespace {

using Json = nlohmann::json;

// What came of a step: HR_OK or HR_BAD_SAMPLE, the batch's cursor, images and sample numbers.
struct Seen {
  int code;
  uint64_t epoch, position;
  size_t images;
  std::vector<int64_t> samples;
  bool operator==(const Seen&) const = default;
};

// A trainer that copies onward, as headrace/_copying.py does.
class Trainer {
 public:
  Trainer(const std::string& socket, const Json& spec) {
    const hr_connect_options options = {socket.c_str(), nullptr, nullptr, 0};
    EXPECT_EQ(hr_client_open(&options, kTimeoutMs, &client_), HR_OK) << hr_last_error();
    EXPECT_EQ(hr_session_open(client_, spec.dump().c_str(), nullptr, 0, 0, kTimeoutMs, &session_), HR_OK) << hr_last_error();
    hr_session_lease_all(session_);
  }
  ~Trainer() {
    Unmap();
    hr_session_close(session_);
    hr_client_close(client_);
  }

  bool on_gpu() const { return info().device_slot_bytes > 0; }
  bool may_change() const { return info().may_change != 0; }
  uint64_t id() const { return info().session_id; }
  uint64_t reconnections() const {
    hr_session_stats stats;
    hr_session_get_stats(session_, &stats);
    return stats.reconnections;
  }
  int Seek(uint64_t epoch, uint64_t position) { return hr_session_seek(session_, epoch, position, kTimeoutMs); }

  Seen Next() {
    hr_batch batch;
    const int code = hr_session_next(session_, &batch, kTimeoutMs);
    if (code == HR_BAD_SAMPLE) return {code, batch.epoch, batch.position, 0, {}};
    EXPECT_EQ(code, HR_OK) << hr_last_error();
    const hr_dl_tensor& images = batch.fields[0]->dl_tensor;
    const auto* begin = static_cast<const uint8_t*>(images.data);
    if (on_gpu()) begin = Map() + reinterpret_cast<uintptr_t>(images.data);
    const auto size = static_cast<size_t>(images.strides[0]) * batch.length * (images.dtype.bits / 8);
    const auto* index = static_cast<const int64_t*>(batch.fields[batch.num_fields - 1]->dl_tensor.data);
    Seen seen = {code, batch.epoch, batch.position, std::hash<std::string_view>()({reinterpret_cast<const char*>(begin), size}),
                 {index, index + batch.length}};
    Drop(batch);
    return seen;
  }
  // The next batch only if it is there. Whether it was.
  bool Take() {
    hr_batch batch;
    const int taken = hr_session_try_next(session_, &batch, HR_MAX_FIELDS);
    EXPECT_GE(taken, 0) << hr_last_error();
    if (taken == 1) Drop(batch);
    return taken == 1;
  }

 private:
  static void Drop(const hr_batch& batch) {
    for (uint32_t i = 0; i < batch.num_fields; ++i) batch.fields[i]->deleter(batch.fields[i]);
  }
  static constexpr int kTimeoutMs = 60000;

  const hr_open_answer& info() const { return *hr_session_info(session_); }
  const uint8_t* Map() {
    if (mapped_of_ == id()) return memory_;
    Unmap();
    char* answer = nullptr;
    int fd = -1;
    EXPECT_EQ(hr_request(client_, HR_DEVICE_MEMORY, Json{{"session", id()}}.dump().c_str(), kTimeoutMs, &answer, &fd), HR_OK);
    bytes_ = Json::parse(answer)["bytes"];
    hr_free(answer);
    memory_ = static_cast<const uint8_t*>(mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, fd, 0));
    close(fd);
    mapped_of_ = id();
    return memory_;
  }
  void Unmap() {
    if (memory_ != nullptr) munmap(const_cast<uint8_t*>(memory_), bytes_);
    memory_ = nullptr;
  }

  hr_client* client_ = nullptr;
  hr_session* session_ = nullptr;
  const uint8_t* memory_ = nullptr;
  uint64_t bytes_ = 0, mapped_of_ = 0;
};

class EngineChangeTest : public ::testing::Test {
 protected:
  static Settings Threads(const std::string& root, int threads) {
    Settings settings;
    settings.data = {root};
    settings.threads = threads;
    return settings;
  }
  Json Spec(const char* engine) {
    Json spec = SmallSpec(dataset_.dir());
    spec["transform"] = {{{"name", "RandomResizedCrop"}, {"size", {48, 40}}}};
    spec["engine"] = engine;
    spec["gpu"] = FakeGpus::Uuid(0);
    return spec;
  }
  // Takes batches as fast as they come, until `until` or for some seconds.
  template <class Until>
  static std::vector<Seen> TakeUntil(Trainer* trainer, const Until& until) {
    std::vector<Seen> seen;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!until() && std::chrono::steady_clock::now() < end) seen.push_back(trainer->Next());
    return seen;
  }
  // They are those of the CPU engine, without a gap.
  void ExpectRight(const std::vector<Seen>& seen, Json spec) {
    spec["engine"] = "cpu";
    Trainer on_cpu(daemon_.socket(), spec);
    for (size_t i = 0; i < seen.size(); ++i) ASSERT_EQ(seen[i], on_cpu.Next()) << "batch " << i;
  }

  FakeGpus gpus_;
  TinyDataset dataset_{{.samples = 50}};
  EmbeddedDaemon daemon_{Threads(dataset_.dir(), 4), [this](PipelineOptions options) {
                           options.open_gpu = gpus_.opener();
                           return Pipeline::Create(options);
                         }};
};

TEST_F(EngineChangeTest, ATrainerThatWaitsForTheCpuGetsTheGpuAndEveryBatchOnce) {
  Trainer trainer(daemon_.socket(), Spec("auto"));
  EXPECT_FALSE(trainer.on_gpu());
  EXPECT_TRUE(trainer.may_change());
  std::vector<Seen> seen = TakeUntil(&trainer, [&] { return trainer.on_gpu(); });
  ASSERT_TRUE(trainer.on_gpu());
  EXPECT_FALSE(trainer.may_change());
  EXPECT_GT(seen.size(), 8u);
  for (int i = 0; i < 40; ++i) seen.push_back(trainer.Next());
  EXPECT_EQ(trainer.reconnections(), 0u);
  ExpectRight(seen, Spec("auto"));
  EXPECT_GT(gpus_.counts().images, 0u);
}

TEST_F(EngineChangeTest, ATrainerThatNeverWaitsKeepsTheCpu) {
  Trainer trainer(daemon_.socket(), Spec("auto"));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  int taken = 0;
  for (; taken < 60 && std::chrono::steady_clock::now() < end; taken += trainer.Take()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(taken, 60);
  EXPECT_FALSE(trainer.on_gpu());
  EXPECT_FALSE(trainer.Next().samples.empty());
}

TEST_F(EngineChangeTest, WhereTheGpuCannotBeHadTheCpuGoesOn) {
  gpus_.Set({.open = absl::UnavailableError("no driver")});
  Trainer trainer(daemon_.socket(), Spec("auto"));
  std::vector<Seen> seen = TakeUntil(&trainer, [&] { return !trainer.may_change(); });
  EXPECT_FALSE(trainer.on_gpu());
  EXPECT_FALSE(trainer.may_change()) << "it is not asked again";
  for (int i = 0; i < 40; ++i) seen.push_back(trainer.Next());
  ExpectRight(seen, Spec("auto"));
}

// The batch that brings the third one fails, in every epoch and with both engines.
TEST_F(EngineChangeTest, BadSamplesAreCountedOn) {
  for (const uint64_t sample : {5, 23, 41}) dataset_.Damage(sample);
  Json spec = Spec("auto");
  spec["on_bad_sample"] = "substitute";
  spec["max_bad"] = 2;
  Trainer trainer(daemon_.socket(), spec);
  std::vector<Seen> seen = TakeUntil(&trainer, [&] { return trainer.on_gpu(); });
  ASSERT_TRUE(trainer.on_gpu());
  for (int i = 0; i < 30; ++i) seen.push_back(trainer.Next());
  EXPECT_EQ(std::count_if(seen.begin() + 1, seen.begin() + 14, [](const Seen& step) { return step.code == HR_BAD_SAMPLE; }), 1);
  ExpectRight(seen, spec);
}

TEST_F(EngineChangeTest, AnEngineThatWasAskedForStays) {
  Trainer trainer(daemon_.socket(), Spec("cpu"));
  EXPECT_FALSE(trainer.may_change());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  TakeUntil(&trainer, [&] { return std::chrono::steady_clock::now() > end; });
  EXPECT_FALSE(trainer.on_gpu());
}

}  // namespace
}  // namespace headrace::testing
