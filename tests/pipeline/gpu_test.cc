// Sessions of the GPU engine, on fake GPUs: every batch is that of the CPU engine.
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "absl/strings/match.h"
#include "core/pipeline/pipeline.h"
#include "tests/pipeline/fake_client.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/tiny_dataset.h"

namespace headrace::testing {
namespace {

constexpr int kFewer = TEST_SLOWDOWN > 1 ? 4 : 1;  // times as few rounds

class GpuTest : public ::testing::Test {
 protected:
  static TinyDataset& Tiny() {
    static auto* tiny = new TinyDataset({.samples = 101, .columns = true});
    return *tiny;
  }
  static void TearDownTestSuite() { Tiny().~TinyDataset(); }

  std::unique_ptr<Pipeline> MakePipeline(int threads = 2, uint64_t device_memory_bytes = uint64_t{64} << 20,
                                         uint64_t page_cache_map_bytes = 0) {
    PipelineOptions options;
    options.decode_threads = threads;
    options.host_memory_bytes = uint64_t{1} << 30;
    options.open_gpu = gpus_.opener();
    options.device_memory_bytes = device_memory_bytes;
    options.page_cache_map_bytes = page_cache_map_bytes;
    return Pipeline::Create(options);
  }
  static SessionSpec Spec(int batch_size, Engine engine = Engine::kGpu, int gpu = 0) {
    SessionSpec spec = TinySpec(Tiny().Open(), batch_size);
    spec.engine = engine;
    spec.gpu = FakeGpus::Uuid(gpu);
    return spec;
  }
  static absl::Status OpenStatus(Pipeline* pipeline, const SessionSpec& spec) {
    return pipeline->Open(spec, {}, nullptr).status();
  }
  static bool IsOnGpu(Pipeline* pipeline, const SessionSpec& spec) { return FakeClient(pipeline, spec).session()->stats().on_gpu; }

  // Takes batches and checks each of them.
  static void Take(FakeClient* client, int batches) {
    for (int i = 0; i < batches; ++i) {
      const auto lease = client->Next();
      ASSERT_TRUE(lease);
      ASSERT_EQ(client->Differs(*lease), "");
      client->Release(*lease);
    }
  }
  static std::vector<uint64_t> Digests(FakeClient* client, int batches) {
    std::vector<uint64_t> digests;
    for (int i = 0; i < batches; ++i) {
      const auto lease = client->Next();
      if (!lease) break;
      digests.push_back(client->Digest(*lease));
      client->Release(*lease);
    }
    return digests;
  }

  // But for less than a volley, which these GPUs' two lanes make of two.
  static void WaitUntilFull(const FakeClient& client) {
    while (client.session()->stats().slots_ready < client.session()->ring().num_slots() - 1) std::this_thread::yield();
  }
  // Takes a batch without waiting for it, as a GPU gives it back: without a bell.
  static void TakeQuietly(FakeClient* client) {
    auto lease = client->Poll();
    while (!lease) lease = client->Poll();
    EXPECT_EQ(client->Differs(*lease), "");
    client->control()->slots[lease->slot].released.store(lease->ticket);
  }

  FakeGpus gpus_;
};

TEST_F(GpuTest, BatchesEqualThoseOfTheCpuEngine) {
  const auto pipeline = MakePipeline();
  for (LastBatch last : {LastBatch::kPartial, LastBatch::kPad, LastBatch::kDrop}) {
    SessionSpec spec = Spec(8);
    spec.last_batch = last;
    FakeClient client(pipeline.get(), spec);
    EXPECT_GE(client.session()->layout().device_field, 0);
    Take(&client, 30);
    const SessionStats stats = client.session()->stats();
    EXPECT_LT(stats.left_samples, stats.samples / 5) << "a few images are too small for entry points";
    client.Seek({0, 0});
    spec.engine = Engine::kCpu;
    FakeClient on_cpu(pipeline.get(), spec);
    EXPECT_EQ(on_cpu.session()->layout().device_field, -1);
    EXPECT_EQ(Digests(&client, 15), Digests(&on_cpu, 15));
  }
  EXPECT_GE(gpus_.counts().images, 3u * 45 * 5);
}

TEST_F(GpuTest, EmptyPartsAreBatchesToo) {
  const TinyDataset tiny({.samples = 3});
  const auto pipeline = MakePipeline();
  SessionSpec spec = Spec(4);
  spec.dataset = tiny.Open();
  spec.fields = {"image", "label"};
  spec.world_size = 8;
  for (spec.rank = 6; spec.rank < 8; ++spec.rank) {
    FakeClient client(pipeline.get(), spec);
    for (uint64_t epoch = 0; epoch < 20; ++epoch) {
      const auto lease = client.Next();
      ASSERT_TRUE(lease);
      EXPECT_EQ(lease->start, (Cursor{epoch, 0}));
      EXPECT_EQ(client.Differs(*lease), "");
      client.Release(*lease);
    }
  }
}

TEST_F(GpuTest, SessionsOfTwoGpusAndOfTheCpuAreServedSideBySide) {
  const auto pipeline = MakePipeline();
  std::vector<std::unique_ptr<FakeClient>> clients;
  for (const SessionSpec& spec : {Spec(8), Spec(5), Spec(8, Engine::kGpu, 1), Spec(8, Engine::kCpu)}) {
    clients.push_back(std::make_unique<FakeClient>(pipeline.get(), spec));
  }
  std::vector<std::thread> trainers;
  for (const auto& client : clients) trainers.emplace_back([&client] { Take(client.get(), 40 / kFewer); });
  for (std::thread& trainer : trainers) trainer.join();
  EXPECT_EQ(gpus_.counts(0).rings, 2);
  EXPECT_EQ(gpus_.counts(1).rings, 1);
  const PipelineStats stats = pipeline->stats();
  ASSERT_EQ(stats.gpus.size(), 2u);
  EXPECT_EQ(stats.gpus[0].uuid, FakeGpus::Uuid(0));
  EXPECT_GT(stats.gpus[0].used_bytes, stats.gpus[1].used_bytes);
}

// The one that was opened first always has a free slot, as its trainer gives back at once.
TEST_F(GpuTest, SessionsOnOneGpuShareItsThread) {
  const auto pipeline = MakePipeline();
  SessionSpec spec = Spec(4);
  spec.prefetch_factor = 30;
  FakeClient first(pipeline.get(), spec), second(pipeline.get(), spec);
  std::atomic<bool> stop = false;
  std::vector<std::thread> trainers;
  for (FakeClient* client : {&first, &second}) {
    trainers.emplace_back([&, client] {
      while (!stop) client->Release(*client->Next());
    });
  }
  const uint64_t before = pipeline->stats().batches;
  while (pipeline->stats().batches < before + 400 / kFewer) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  stop = true;
  for (std::thread& trainer : trainers) trainer.join();
  const uint64_t a = first.session()->stats().batches, b = second.session()->stats().batches;
  EXPECT_GT(std::min(a, b), std::max(a, b) / 4) << a << " and " << b;
}

TEST_F(GpuTest, WhatTheGpuLeavesTheDecodeThreadsMake) {
  const auto pipeline = MakePipeline();
  for (const auto& [refused_of, left_of] : {std::pair{3, 0}, {0, 3}, {2, 5}, {1, 0}, {0, 1}}) {
    gpus_.Set({.open = {}, .refused_of = static_cast<uint32_t>(refused_of), .left_of = static_cast<uint32_t>(left_of)});
    FakeClient client(pipeline.get(), Spec(8));
    Take(&client, 26);
    EXPECT_GE(client.session()->stats().left_samples, 26u) << "place 0 of each batch";
  }
}

TEST_F(GpuTest, ABatchMayTakeSeveralBursts) {
  const auto pipeline = MakePipeline();
  for (const uint32_t burst_samples : {1, 3, 7}) {
    gpus_.Set({.open = {}, .burst_samples = burst_samples, .left_of = 4});
    FakeClient client(pipeline.get(), Spec(20));
    Take(&client, 8);
  }
}

TEST_F(GpuTest, AnImageThatFitsIntoNoBurstIsLeft) {
  gpus_.Set({.open = {}, .burst_samples = 0});
  const auto pipeline = MakePipeline();
  FakeClient client(pipeline.get(), Spec(8));
  Take(&client, 5);
  EXPECT_EQ(gpus_.counts().images, 0u);
}

// What a session may use at most is of decode threads: the next batches on the GPU do not count.
TEST_F(GpuTest, LeftPlacesDoNotWaitForTheBatchesBehind) {
  gpus_.Set({.open = {}, .refused_of = 2});
  const auto pipeline = MakePipeline();
  SessionSpec spec = Spec(8);
  spec.max_threads = 1;
  FakeClient client(pipeline.get(), spec);
  WaitUntilFull(client);
  const FakeGpus::Hold hold(&gpus_, 1);
  client.Seek({0, 0});
  const auto lease = client.Next();
  ASSERT_TRUE(lease);
  EXPECT_EQ(client.Differs(*lease), "");
}

TEST_F(GpuTest, ASeekAbandonsWhatTheGpuMakes) {
  const auto pipeline = MakePipeline();
  FakeClient client(pipeline.get(), Spec(6));
  std::mt19937 random(8);
  for (int round = 0; round < 20; ++round) {
    gpus_.Set({.open = {}, .burst_samples = random() % 2 == 0 ? 2 : UINT32_MAX, .left_of = static_cast<uint32_t>(random() % 3)});
    FakeGpus::Hold hold(&gpus_);
    client.Seek({0, random() % 101});
    ASSERT_TRUE(hold.WaitForBursts(1));
    const Cursor cursor{1 + random() % 3, random() % 101};
    const auto ready = [&] {
      std::vector<uint32_t> tickets;
      for (int slot = 0; slot < client.session()->ring().num_slots(); ++slot) tickets.push_back(client.control()->slots[slot].ready);
      return tickets;
    };
    const std::vector<uint32_t> before = ready();
    client.Seek(cursor);
    EXPECT_EQ(ready(), before) << "of the batches abandoned none";
    hold.LetGo();
    const auto lease = client.Next();
    ASSERT_TRUE(lease);
    EXPECT_EQ(lease->start, Normalized(Spec(6), cursor));
    EXPECT_EQ(client.Differs(*lease), "");
    client.Release(*lease);
    Take(&client, 6);  // more than there are slots
  }
}

TEST_F(GpuTest, AClosedSessionsMemoryStaysWhileABurstWrites) {
  const auto pipeline = MakePipeline();
  for (RingMemory memory : {RingMemory::kKeep, RingMemory::kDiscard}) {
    FakeGpus::Hold hold(&gpus_);
    FakeClient client(pipeline.get(), Spec(8));
    ASSERT_TRUE(hold.WaitForBursts(1));
    client.Close(memory);
    EXPECT_TRUE(pipeline->stats().sessions.empty());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // for whoever would give it back now
    EXPECT_EQ(gpus_.counts().rings, 1);
    EXPECT_GT(pipeline->stats().host_memory_used, 0u);
    hold.LetGo();
    while (gpus_.counts().rings > 0 || pipeline->stats().host_memory_used > 0) std::this_thread::yield();
    EXPECT_FALSE(client.Poll());
  }
  EXPECT_EQ(pipeline->stats().gpus[0].used_bytes, 0u);
}

TEST_F(GpuTest, SessionsCanBeClosedAtAnyMoment) {
  const auto pipeline = MakePipeline();
  std::mt19937 random(2);
  FakeClient lasting(pipeline.get(), Spec(4));
  for (int round = 0; round < 60 / kFewer; ++round) {
    gpus_.Set({.open = {}, .burst_samples = 1 + static_cast<uint32_t>(random() % 8), .left_of = static_cast<uint32_t>(random() % 4)});
    FakeClient client(pipeline.get(), Spec(1 + static_cast<int>(random() % 30)));
    Take(&client, static_cast<int>(random() % 3));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
    client.Close(random() % 2 == 0 ? RingMemory::kKeep : RingMemory::kDiscard);
    Take(&lasting, 1);
  }
  EXPECT_EQ(pipeline->stats().sessions.size(), 1u);
}

TEST_F(GpuTest, ThePipelineCanEndAtAnyMoment) {
  std::mt19937 random(3);
  for (int round = 0; round < 60 / kFewer; ++round) {
    gpus_.Set({.open = {}, .burst_samples = 1 + static_cast<uint32_t>(random() % 8), .left_of = static_cast<uint32_t>(random() % 4)});
    auto pipeline = MakePipeline();
    FakeClient client(pipeline.get(), Spec(1 + static_cast<int>(random() % 30)));
    const FakeClient other(pipeline.get(), Spec(4, Engine::kGpu, static_cast<int>(random() % 2)));
    Take(&client, static_cast<int>(random() % 3));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 1000));
    pipeline.reset();
    EXPECT_EQ(gpus_.counts().gpus, 0) << "no thread of it is left, though there are sessions";
  }
}

TEST_F(GpuTest, ThePipelineEndsWhileABurstIsOnItsWay) {
  auto pipeline = MakePipeline();
  FakeGpus::Hold hold(&gpus_);
  FakeClient client(pipeline.get(), Spec(8));
  SessionSpec spec = Spec(8);
  spec.engine = Engine::kCpu;
  FakeClient on_cpu(pipeline.get(), spec);
  ASSERT_TRUE(hold.WaitForBursts(1));
  std::thread ends([&] { pipeline.reset(); });
  while (on_cpu.session()->stats().ring_bytes > 0) std::this_thread::yield();  // all sessions are closed at once
  EXPECT_EQ(gpus_.counts().gpus, 1);
  hold.LetGo();
  ends.join();
  EXPECT_EQ(gpus_.counts().gpus, 0);
  EXPECT_FALSE(client.Poll());
}

TEST_F(GpuTest, BadSamplesAreThoseOfTheCpuEngine) {
  const TinyDataset tiny({.samples = 60, .columns = true});
  for (uint64_t sample : {7, 22, 23, 41}) tiny.Damage(sample);
  for (const uint32_t left_of : {0, 3}) {
    gpus_.Set({.open = {}, .left_of = left_of});
    for (OnBadSample policy : {OnBadSample::kFail, OnBadSample::kSkip, OnBadSample::kSubstitute}) {
      const auto pipeline = MakePipeline();
      SessionSpec spec = Spec(16);
      spec.dataset = tiny.Open();
      spec.on_bad_sample = policy;
      FakeClient client(pipeline.get(), spec);
      spec.engine = Engine::kCpu;
      FakeClient on_cpu(pipeline.get(), spec);
      EXPECT_EQ(Digests(&client, 8), Digests(&on_cpu, 8));
      EXPECT_GE(client.session()->stats().bad_samples, 8u);
    }
  }
}

TEST_F(GpuTest, AutoTakesTheGpuWhereThereAreFewDecodeThreads) {
  EXPECT_TRUE(IsOnGpu(MakePipeline(3).get(), Spec(4, Engine::kAuto)));
  const auto pipeline = MakePipeline(4);
  EXPECT_FALSE(IsOnGpu(pipeline.get(), Spec(4, Engine::kAuto)));
  SessionSpec starved = Spec(4, Engine::kAuto);
  starved.starved = true;
  EXPECT_TRUE(IsOnGpu(pipeline.get(), starved));
  starved.engine = Engine::kCpu;
  EXPECT_FALSE(IsOnGpu(pipeline.get(), starved));
  EXPECT_EQ(FakeClient(pipeline.get(), Spec(4, Engine::kAuto)).session()->spec().engine, Engine::kAuto) << "it may change";
  const FakeClient first(pipeline.get(), Spec(4, Engine::kAuto));
  EXPECT_TRUE(IsOnGpu(pipeline.get(), Spec(4, Engine::kAuto)));  // of two each has two
  EXPECT_FALSE(IsOnGpu(pipeline.get(), Spec(4, Engine::kCpu)));
}

TEST_F(GpuTest, AutoFallsBackToTheCpu) {
  const auto expect_cpu = [](Pipeline* pipeline, const SessionSpec& spec) {
    FakeClient client(pipeline, spec);
    EXPECT_EQ(client.session()->spec().engine, Engine::kCpu);
    EXPECT_FALSE(client.session()->stats().on_gpu);
    Take(&client, 3);
  };
  SessionSpec spec = Spec(4, Engine::kAuto);
  expect_cpu(MakePipeline(1, /*device_memory_bytes=*/1000).get(), spec);
  gpus_.Set({.open = absl::UnavailableError("no driver")});
  const auto pipeline = MakePipeline(1);
  expect_cpu(pipeline.get(), spec);
  gpus_.Set({});
  spec.gpu = "";
  expect_cpu(pipeline.get(), spec);
  spec = Spec(4, Engine::kAuto);
  spec.fields = {"label"};  // no images
  expect_cpu(pipeline.get(), spec);
  spec.engine = Engine::kGpu;
  expect_cpu(pipeline.get(), spec);
}

TEST_F(GpuTest, AGpuThatCannotBeHadIsRefusedWithTheReason) {
  const auto expect = [](const absl::Status& status, absl::StatusCode code, const char* reason) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "engine = \"gpu\"")) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), reason)) << status;
  };
  const auto pipeline = MakePipeline();
  SessionSpec nowhere = Spec(4);
  nowhere.gpu = "";
  expect(OpenStatus(pipeline.get(), nowhere), absl::StatusCode::kInvalidArgument, "device=\"cuda\"");
  nowhere.gpu = std::string(32, 'f');
  expect(OpenStatus(pipeline.get(), nowhere), absl::StatusCode::kUnimplemented, "there is no GPU ffff");
  gpus_.Set({.open = absl::UnavailableError("no driver")});
  expect(OpenStatus(pipeline.get(), Spec(4)), absl::StatusCode::kUnimplemented, "no driver");
  gpus_.Set({.open = absl::ResourceExhaustedError("its memory is taken")});
  expect(OpenStatus(pipeline.get(), Spec(4)), absl::StatusCode::kResourceExhausted, "its memory is taken");
  gpus_.Set({});
  expect(OpenStatus(MakePipeline(2, 1000).get(), Spec(4)), absl::StatusCode::kResourceExhausted, "of 1000 bytes wanted");
  PipelineOptions options;
  options.host_memory_bytes = uint64_t{1} << 30;
  expect(OpenStatus(Pipeline::Create(options).get(), Spec(4)), absl::StatusCode::kUnimplemented, "no GPU engine");
  EXPECT_EQ(pipeline->stats().host_memory_used, 0u);
  Take(std::make_unique<FakeClient>(pipeline.get(), Spec(4)).get(), 3);  // and one that can is not
}

TEST_F(GpuTest, MemoryOfClosedSessionsIsThereForTheNext) {
  const auto pipeline = MakePipeline(2, /*device_memory_bytes=*/uint64_t{256} << 10);
  const SessionSpec spec = Spec(8);  // 4 slots of 24 KiB, in pieces of 64 KiB
  const FakeClient lasting(pipeline.get(), spec);
  for (int round = 0; round < 20; ++round) {
    FakeClient client(pipeline.get(), spec);
    Take(&client, 1);
  }
  while (pipeline->stats().gpus[0].used_bytes > uint64_t{128} << 10) std::this_thread::yield();
}

// As the GPU itself writes `released`: nobody rings.
TEST_F(GpuTest, SlotsThatComeBackWithoutABellAreSeen) {
  const auto pipeline = MakePipeline();
  FakeClient client(pipeline.get(), Spec(4));
  for (int round = 0; round < 8; ++round) {
    WaitUntilFull(client);
    if (round % 4 == 3) std::this_thread::sleep_for(std::chrono::milliseconds(1200));  // a rest is less closely watched
    for (int i = 0; i <= round % 4; ++i) TakeQuietly(&client);
  }
  WaitUntilFull(client);
  EXPECT_GE(client.session()->stats().batches, 3u + 2 * (1 + 2 + 3 + 4));
}

TEST_F(GpuTest, ATrainerThatIsNotShortGetsItsBatchesInVolleys) {
  const auto pipeline = MakePipeline();
  FakeClient client(pipeline.get(), Spec(1));
  uint64_t taken = 0;
  const auto begun = [&] { return client.session()->stats().cursor.position; };
  const auto take = [&] {
    TakeQuietly(&client);
    ++taken;
  };
  for (int round = 0; round < 10; ++round) {
    while (begun() - taken < 4) {  // three may be all that there will be
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (begun() - taken == 3) take();
    }
    const uint64_t before = begun();
    take();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(begun(), before) << "three are ahead";
    take();
    while (begun() < before + 2) std::this_thread::yield();
  }
}

TEST_F(GpuTest, ATrainerThatWaitsGetsEachBatchAsSoonAsItCan) {
  const auto pipeline = MakePipeline();
  SessionSpec spec = Spec(4);
  spec.prefetch_factor = 1;
  FakeClient client(pipeline.get(), spec);
  // It keeps all slots but one: no volley will ever come together.
  std::vector<Lease> kept;
  for (int i = 0; i < client.session()->ring().num_slots() - 1; ++i) {
    const auto lease = client.Next();
    ASSERT_TRUE(lease);
    kept.push_back(*lease);
  }
  Take(&client, 5);
}

TEST_F(GpuTest, ReadsWhatItsHashWasCheckedOfFromPinnedShards) {
  const std::shared_ptr<const Dataset> dataset = Tiny().Open();
  const uint64_t shard_bytes = dataset->all_shard_bytes();
  const auto pipeline = MakePipeline(2, uint64_t{64} << 20, /*page_cache_map_bytes=*/shard_bytes + dataset->all_index_bytes());
  SessionSpec spec = Spec(8);
  spec.dataset = dataset;
  {
    FakeClient client(pipeline.get(), spec), second(pipeline.get(), spec);
    while (pipeline->stats().page_cache_map_used < shard_bytes) std::this_thread::yield();
    EXPECT_EQ(gpus_.pinned_bytes(), shard_bytes) << "once for both";
    Take(&client, 45);
    Take(&second, 5);
    EXPECT_GE(gpus_.counts().mapped, 2u * 101 * 4 / 5) << "all but the first epoch, and few are too small";
    // Its bytes are taken once only: another dataset does not fit beside it.
    const TinyDataset other({.samples = 20});
    SessionSpec of_other = spec;
    of_other.dataset = other.Open();
    of_other.fields = {"image", "label"};
    FakeClient third(pipeline.get(), of_other);
    Take(&third, 5);
    EXPECT_EQ(gpus_.pinned_bytes(), shard_bytes);
  }
  while (gpus_.pinned_bytes() > 0) std::this_thread::yield();
  EXPECT_EQ(pipeline->stats().page_cache_map_used, 0u);
  FakeClient again(pipeline.get(), spec);
  while (gpus_.pinned_bytes() < shard_bytes) std::this_thread::yield();
  Take(&again, 20);
}

TEST_F(GpuTest, WhatCannotBePinnedIsRead) {
  gpus_.Set({.pin = absl::InternalError("refused")});
  const std::shared_ptr<const Dataset> dataset = Tiny().Open();
  const auto pipeline = MakePipeline(2, uint64_t{64} << 20, dataset->all_shard_bytes() - 1);
  SessionSpec spec = Spec(8);
  spec.dataset = dataset;
  FakeClient too_large(pipeline.get(), spec);
  Take(&too_large, 30);
  const auto other = MakePipeline(2, uint64_t{64} << 20, uint64_t{1} << 30);
  FakeClient refused(other.get(), spec);
  Take(&refused, 30);
  EXPECT_EQ(gpus_.counts().mapped, 0u);
}

}  // namespace
}  // namespace headrace::testing
