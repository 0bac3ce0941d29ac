#include "core/pipeline/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "core/batch/order.h"
#include "tests/pipeline/fake_client.h"
#include "tests/support/tiny_dataset.h"

namespace headrace::testing {
namespace {

std::unique_ptr<Pipeline> MakePipeline(int threads) {
  PipelineOptions options;
  options.decode_threads = threads;
  options.host_memory_bytes = uint64_t{1} << 30;
  return Pipeline::Create(options);
}

class PipelineTest : public ::testing::Test {
 protected:
  static TinyDataset& Tiny() {
    static auto* tiny = new TinyDataset({.samples = 101, .columns = true});
    return *tiny;
  }
  static void TearDownTestSuite() { Tiny().~TinyDataset(); }
  SessionSpec Spec(int batch_size) { return TinySpec(Tiny().Open(), batch_size); }
};

TEST_F(PipelineTest, MakesEveryBatchOfSeveralEpochsInOrder) {
  const auto pipeline = MakePipeline(3);
  for (LastBatch last : {LastBatch::kPartial, LastBatch::kPad, LastBatch::kDrop}) {
    SessionSpec spec = Spec(8);
    spec.last_batch = last;
    FakeClient client(pipeline.get(), spec);
    Cursor cursor;
    for (int step = 0; step < 40; ++step) {
      const auto lease = client.Next();
      ASSERT_TRUE(lease);
      EXPECT_EQ(lease->start, Normalized(spec, cursor));
      EXPECT_EQ(client.Differs(*lease), "");
      cursor = lease->next;
      client.Release(*lease);
    }
    EXPECT_GE(cursor.epoch, 2u);
  }
}

TEST_F(PipelineTest, RanksTogetherTakeEverySampleOnce) {
  const auto pipeline = MakePipeline(2);
  std::map<int64_t, int> seen;
  for (int rank = 0; rank < 3; ++rank) {
    SessionSpec spec = Spec(7);
    spec.rank = rank;
    spec.world_size = 3;
    FakeClient client(pipeline.get(), spec);
    for (uint64_t steps = StepsLeft(spec, Cursor{}); steps > 0; --steps) {
      const auto lease = client.Next();
      ASSERT_TRUE(lease);
      for (int64_t index : Indices(client, *lease)) ++seen[index];
      client.Release(*lease);
    }
  }
  EXPECT_EQ(seen.size(), 101u);
  for (const auto& [index, count] : seen) EXPECT_EQ(count, 1) << index;
}

TEST_F(PipelineTest, EmptyPartsAreBatchesToo) {
  const TinyDataset tiny({.samples = 3});
  const auto pipeline = MakePipeline(2);
  SessionSpec spec = TinySpec(tiny.Open(), 4);
  spec.rank = 7;
  spec.world_size = 8;
  FakeClient client(pipeline.get(), spec);
  for (uint64_t epoch = 0; epoch < 50; ++epoch) {
    const auto lease = client.Next();
    ASSERT_TRUE(lease);
    EXPECT_EQ(lease->length, 0u);
    EXPECT_EQ(lease->start, (Cursor{epoch, 0}));
    EXPECT_EQ(lease->next, (Cursor{epoch, 3}));
    client.Release(*lease);
  }
}

// Its slots may still be being populated then.
TEST_F(PipelineTest, ASessionMayEndAsSoonAsItWasOpened) {
  for (int i = 0; i < 200; ++i) {
    const auto pipeline = MakePipeline(1);
    SessionSpec spec = Spec(4);
    spec.prefetch_factor = 8;
    const FakeClient client(pipeline.get(), spec);
  }
}

TEST_F(PipelineTest, BatchesDoNotDependOnTheNumberOfThreads) {
  std::vector<uint64_t> first;
  for (int threads = 1; threads <= 8; ++threads) {
    const auto pipeline = MakePipeline(threads);
    FakeClient client(pipeline.get(), Spec(9));
    std::vector<uint64_t> digests;
    for (int step = 0; step < 15; ++step) {
      const auto lease = client.Next();
      ASSERT_TRUE(lease);
      digests.push_back(client.Digest(*lease));
      client.Release(*lease);
    }
    if (threads == 1) first = digests;
    EXPECT_EQ(digests, first) << threads;
  }
  EXPECT_NE(first[0], first[1]);
}

// Leases are held, given back in any order, late and twice; leased slots do not change.
TEST_F(PipelineTest, LeasedBatchesStayWhateverTheOrderOfReleases) {
  const auto pipeline = MakePipeline(3);
  std::mt19937 random(5);
  for (int prefetch : {0, 2, 6}) {
    SessionSpec spec = Spec(5);
    spec.prefetch_factor = prefetch;
    FakeClient client(pipeline.get(), spec);
    std::vector<std::pair<Lease, uint64_t>> held;
    std::vector<Lease> released;
    for (int step = 0; step < 120; ++step) {
      while (!held.empty() && (static_cast<int>(held.size()) > prefetch || random() % 3 == 0)) {
        const size_t i = random() % held.size();
        ASSERT_EQ(client.Digest(held[i].first), held[i].second);
        client.Release(held[i].first);
        released.push_back(held[i].first);
        held.erase(held.begin() + static_cast<ptrdiff_t>(i));
      }
      if (!released.empty() && random() % 2 == 0) {  // a second store of an old ticket, perhaps while a newer one is leased
        const Lease& old = released[random() % released.size()];
        auto& word = client.control()->slots[old.slot].released;
        if (word.load() == old.ticket) word.store(old.ticket);
      }
      const auto lease = client.Next();
      ASSERT_TRUE(lease);
      ASSERT_EQ(lease->ticket, static_cast<uint32_t>(step + 1));
      held.emplace_back(*lease, client.Digest(*lease));
    }
    for (const auto& [lease, digest] : held) EXPECT_EQ(client.Digest(lease), digest);
  }
}

TEST_F(PipelineTest, SeekGoesOnAtAnyCursor) {
  const auto pipeline = MakePipeline(4);
  SessionSpec spec = Spec(6);
  FakeClient client(pipeline.get(), spec, {1, 30});
  std::mt19937 random(8);
  Cursor cursor{1, 30};
  std::vector<Lease> held;
  for (int round = 0; round < 60; ++round) {
    for (int step = 0; step < static_cast<int>(random() % 5); ++step) {
      const auto lease = client.Next();
      ASSERT_TRUE(lease);
      ASSERT_EQ(lease->start, Normalized(spec, cursor));
      ASSERT_EQ(client.Differs(*lease), "");
      cursor = lease->next;
      held.push_back(*lease);
      if (held.size() > 2) {
        client.Release(held.front());
        held.erase(held.begin());
      }
    }
    cursor = {random() % 3, random() % 120};
    client.Seek(cursor);
  }
}

TEST_F(PipelineTest, SessionsCanBeClosedAtAnyMoment) {
  const auto pipeline = MakePipeline(4);
  std::mt19937 random(2);
  FakeClient lasting(pipeline.get(), Spec(4));
  for (int round = 0; round < 60; ++round) {
    FakeClient client(pipeline.get(), Spec(1 + static_cast<int>(random() % 30)));
    for (uint32_t step = random() % 4; step > 0; --step) {
      const auto lease = client.Next();
      ASSERT_TRUE(lease);
      if (random() % 2 == 0) client.Release(*lease);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
    client.Close(random() % 2 == 0 ? RingMemory::kKeep : RingMemory::kDiscard);
    client.Close();
    EXPECT_EQ(client.session()->Seek({0, 0}), client.session()->Seek({1, 0}));
    client.session()->OnDoorbell();
    const auto lease = lasting.Next();
    ASSERT_TRUE(lease);
    ASSERT_EQ(lasting.Differs(*lease), "");
    lasting.Release(*lease);
  }
  EXPECT_EQ(pipeline->stats().sessions.size(), 1u);
}

TEST_F(PipelineTest, ADeadClientsMemoryIsEmptiedAndALivingOnesIsNot) {
  const auto pipeline = MakePipeline(2);
  for (RingMemory memory : {RingMemory::kKeep, RingMemory::kDiscard}) {
    FakeClient client(pipeline.get(), Spec(4));
    const auto lease = client.Next();
    ASSERT_TRUE(lease);
    client.Close(memory);
    while (pipeline->stats().host_memory_used > 0) std::this_thread::yield();
    if (memory == RingMemory::kKeep) {
      EXPECT_EQ(client.Differs(*lease), "");
    } else {
      EXPECT_EQ(client.control()->fixed.magic, 0u);
      EXPECT_TRUE(std::all_of(lease->bytes, lease->bytes + 1000, [](uint8_t byte) { return byte == 0; }));
    }
  }
}

TEST_F(PipelineTest, SessionsMayOutliveThePipeline) {
  auto pipeline = MakePipeline(2);
  FakeClient client(pipeline.get(), Spec(4));
  const auto lease = client.Next();
  ASSERT_TRUE(lease);
  client.session()->MarkStopping("the daemon was told to stop");
  EXPECT_STREQ(client.control()->daemon.reason, "the daemon was told to stop");
  EXPECT_EQ(client.control()->daemon.stopping.load(), 1u);
  pipeline.reset();
  EXPECT_EQ(client.Differs(*lease), "");
  client.Release(*lease);
  client.session()->OnDoorbell();
  client.Seek({0, 0});
  client.session()->MarkStopping("again");
  EXPECT_FALSE(client.Poll());
}

// A client that has not noticed its daemon's death names its session to the next one, which may know another of its process.
TEST_F(PipelineTest, NoSessionHasTheNumberOfOneOfAnotherDaemon) {
  std::set<uint64_t> numbers;
  for (int daemon = 0; daemon < 3; ++daemon) {
    const auto pipeline = MakePipeline(1);
    FakeClient first(pipeline.get(), Spec(4)), second(pipeline.get(), Spec(4));
    numbers.insert({first.session()->id(), second.session()->id()});
  }
  EXPECT_EQ(numbers.size(), 6u);
}

// Whatever a client stores anywhere in its ring at any time, the daemon lives and other sessions are served.
TEST_F(PipelineTest, HostileWordsHarmNobodyElse) {
  const auto pipeline = MakePipeline(3);
  FakeClient honest(pipeline.get(), Spec(4));
  FakeClient hostile(pipeline.get(), Spec(4));
  FakeClient releasing(pipeline.get(), Spec(4));
  std::atomic<bool> stop = false;
  std::thread attack([&] {
    std::mt19937 random(4);
    while (!stop) {
      auto* words = reinterpret_cast<std::atomic<uint32_t>*>(hostile.control());
      for (int i = 0; i < 200; ++i) words[random() % (HR_CONTROL_BYTES / 4)].store(random() % 3 == 0 ? random() : random() % 64);
      hostile.session()->OnDoorbell();
      // Gives every ticket back before it was handed out.
      for (int slot = 0; slot < 4; ++slot) {
        releasing.control()->slots[slot].released.store(releasing.control()->slots[slot].ready.load());
      }
      releasing.session()->OnDoorbell();
    }
  });
  for (int step = 0; step < 150; ++step) {
    const auto lease = honest.Next();
    ASSERT_TRUE(lease);
    ASSERT_EQ(honest.Differs(*lease), "");
    honest.Release(*lease);
  }
  stop = true;
  attack.join();
}

TEST_F(PipelineTest, AFullRingIsWatchedForReleases) {
  const auto pipeline = MakePipeline(2);
  FakeClient client(pipeline.get(), Spec(4));
  while (client.session()->stats().slots_ready < 4) std::this_thread::yield();
  while (client.control()->daemon.waiting.load() != HR_WAITING_WHILE_YOU_ARE) std::this_thread::yield();
  EXPECT_EQ(client.wakes(), 0u);  // nobody waited, so no bell was rung
  for (uint64_t batches = 5; batches < 10; ++batches) {
    const auto lease = client.Poll();
    ASSERT_TRUE(lease);
    client.control()->slots[lease->slot].released.store(lease->ticket);
    while (client.session()->stats().batches < batches) std::this_thread::yield();
  }
  // A bell that is rung all the same, before a client waits, is answered at once.
  while (client.control()->daemon.waiting.load() != HR_WAITING_WHILE_YOU_ARE) std::this_thread::yield();
  client.Release(*client.Poll());
  while (client.session()->stats().batches < 10) std::this_thread::yield();
}

TEST_F(PipelineTest, ARingThatStaysFullSleepsUntilADoorbell) {
  const auto pipeline = MakePipeline(2);
  FakeClient client(pipeline.get(), Spec(4));
  while (client.control()->daemon.waiting.load() != HR_WAITING) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto lease = client.Poll();
  ASSERT_TRUE(lease);
  client.control()->slots[lease->slot].released.store(lease->ticket);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(pipeline->stats().batches, 4u);
  client.session()->OnDoorbell();
  while (client.session()->stats().batches < 5) std::this_thread::yield();
  EXPECT_EQ(client.session()->stats().slots, 4);
}

TEST_F(PipelineTest, ThreadTimeIsCountedWithEachBatch) {
  const auto pipeline = MakePipeline(1);
  FakeClient client(pipeline.get(), Spec(1));
  uint64_t before_ns = 0;
  for (uint64_t batches = 4; batches < 24; ++batches) {
    while (client.session()->stats().batches < batches) std::this_thread::yield();
    const uint64_t decode_ns = client.session()->stats().decode_ns;
    EXPECT_GT(decode_ns, before_ns);
    before_ns = decode_ns;
    client.Release(*client.Poll());
  }
}

TEST_F(PipelineTest, StatisticsCountWhatWasMade) {
  const auto pipeline = MakePipeline(2);
  {
    FakeClient client(pipeline.get(), Spec(10));
    for (int step = 0; step < 11; ++step) client.Release(*client.Next());
    while (client.session()->stats().slots_ready < 4) std::this_thread::yield();
    const SessionStats stats = client.session()->stats();
    EXPECT_EQ(stats.batches, 15u);
    EXPECT_EQ(stats.samples, 101u + 40u);
    EXPECT_EQ(stats.cursor, (Cursor{1, 40}));
    EXPECT_GT(stats.decode_ns, 0u);
  }
  const PipelineStats stats = pipeline->stats();
  EXPECT_EQ(stats.batches, 15u);
  EXPECT_EQ(stats.samples, 141u);
  EXPECT_GT(stats.bytes_read, 141u * 300);
  EXPECT_TRUE(stats.sessions.empty());
}

}  // namespace
}  // namespace headrace::testing
