#include <gtest/gtest.h>

#include <algorithm>
#include <queue>
#include <thread>
#include <vector>

#include "core/pipeline/fair_clock.h"
#include "core/pipeline/pipeline.h"
#include "tests/pipeline/fake_client.h"
#include "tests/pipeline/read_gate.h"
#include "tests/support/tiny_dataset.h"

namespace headrace::testing {
namespace {

// Threads and sessions in made-up time: what FairClock decides, without a machine's noise.
class Simulation {
 public:
  struct Session {
    int64_t place_ns;
    uint32_t unit_places = 4;
    bool hungry = true;
    int64_t served_ns = 0;  // thread time it has had
    Share share;
  };

  explicit Simulation(int threads) {
    for (int i = 0; i < threads; ++i) free_at_.push({0, -1, 0});
  }
  void Add(int64_t place_ns, uint32_t unit_places = 4) {
    sessions_.push_back({.place_ns = place_ns, .unit_places = unit_places, .share = {}});
    clock_.Join(&sessions_.back().share);
  }
  void RunUntil(int64_t end_ns) {
    while (free_at_.top().time < end_ns) {
      const Event event = free_at_.top();
      free_at_.pop();
      if (event.session >= 0) {
        Session& done = sessions_[static_cast<size_t>(event.session)];
        const int64_t spent = done.place_ns * done.unit_places;
        clock_.End(&done.share, event.charge, spent, done.unit_places);
        done.served_ns += spent;
      }
      int best = -1;
      for (size_t i = 0; i < sessions_.size(); ++i) {
        if (!sessions_[i].hungry) continue;
        clock_.Refresh(&sessions_[i].share);
        if (best < 0 || sessions_[i].share.virtual_ns < sessions_[static_cast<size_t>(best)].share.virtual_ns) {
          best = static_cast<int>(i);
        }
      }
      if (best < 0) {
        free_at_.push({event.time + 100'000, -1, 0});
        continue;
      }
      Session& session = sessions_[static_cast<size_t>(best)];
      const int64_t charge = clock_.Begin(&session.share, session.unit_places);
      free_at_.push({event.time + session.place_ns * session.unit_places, best, charge});
    }
  }
  Session& session(int i) { return sessions_[static_cast<size_t>(i)]; }

 private:
  struct Event {
    int64_t time;
    int session;
    int64_t charge;
    bool operator<(const Event& other) const { return time > other.time; }  // earliest on top
  };
  FairClock clock_;
  std::vector<Session> sessions_;
  std::priority_queue<Event> free_at_;
};

constexpr int64_t kSecond = 1'000'000'000;

TEST(FairClock, EqualsGetEqualShares) {
  for (int threads : {1, 2, 5, 16, 128}) {
    Simulation simulation(threads);
    for (int i = 0; i < 8; ++i) simulation.Add(200'000);
    simulation.RunUntil(2 * kSecond);
    for (int i = 1; i < 8; ++i) {
      EXPECT_NEAR(static_cast<double>(simulation.session(i).served_ns) / simulation.session(0).served_ns, 1, 0.02)
          << threads;
    }
  }
}

TEST(FairClock, SharesAreOfTimeWhateverAPlaceCosts) {
  Simulation simulation(4);
  simulation.Add(100'000, 8);
  simulation.Add(300'000, 1);
  simulation.Add(20'000'000, 8);  // a unit is longer than what may be caught up
  simulation.RunUntil(20 * kSecond);
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(static_cast<double>(simulation.session(i).served_ns), 20.0 * kSecond * 4 / 3, 1.5 * kSecond) << i;
  }
}

TEST(FairClock, ANewcomerCatchesUpALittleOnly) {
  Simulation simulation(2);
  simulation.Add(200'000);
  simulation.RunUntil(10 * kSecond);
  simulation.Add(200'000);
  const int64_t before = simulation.session(0).served_ns;
  simulation.RunUntil(11 * kSecond);
  EXPECT_NEAR(static_cast<double>(simulation.session(0).served_ns - before), kSecond, 0.05 * kSecond);
  EXPECT_GT(simulation.session(1).served_ns, kSecond);
}

TEST(FairClock, ASleeperCatchesUpALittleOnly) {
  Simulation simulation(2);
  simulation.Add(200'000);
  simulation.Add(200'000);
  simulation.RunUntil(kSecond);
  simulation.session(1).hungry = false;
  simulation.RunUntil(10 * kSecond);
  simulation.session(1).hungry = true;
  const int64_t before = simulation.session(0).served_ns;
  simulation.RunUntil(11 * kSecond);
  EXPECT_NEAR(static_cast<double>(simulation.session(0).served_ns - before), kSecond, 0.05 * kSecond);
}

// Real threads, each held up in every unit. In which order they go on does not depend on the machine.
TEST(Shares, SessionsOfOneThreadAreServedBesideOthers) {
  constexpr int kThreads = 4, kUnits = 600, kWide = 0, kNarrow = 1;
  const TinyDataset tiny({.samples = 400, .files = 8});
  SessionSpec specs[] = {TinySpec(tiny.Open(), 2), TinySpec(tiny.Open(), 2)};
  for (SessionSpec& spec : specs) spec.prefetch_factor = 30, spec.fields = {"image"};
  specs[kNarrow].max_threads = 1;
  PipelineOptions options;
  options.decode_threads = kThreads;
  options.host_memory_bytes = uint64_t{1} << 30;
  options.verify = Verify::kEvery;  // a unit is a sample here, and then a sample is one read
  const auto pipeline = Pipeline::Create(options);
  ReadGate gate({specs[kWide].dataset.get(), specs[kNarrow].dataset.get()});
  FakeClient wide(pipeline.get(), specs[kWide]), narrow(pipeline.get(), specs[kNarrow]);
  for (const FakeClient* client : {&wide, &narrow}) {
    while (client->session()->stats().slots < 32) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const auto let_one_go = [&] {
    const int dataset = gate.LetOneGo();
    for (FakeClient* client : {&wide, &narrow}) {
      while (const auto lease = client->Poll()) client->Release(*lease);
    }
    return dataset;
  };
  wide.control()->client.waiting.store(1);  // who waits gets all threads, once a batch is made
  while (gate.WaitFor(kThreads, std::chrono::milliseconds(100)).empty()) let_one_go();

  int served[2] = {};
  for (int unit = 0; unit < kUnits; ++unit) {
    const std::vector<int> in_work = gate.WaitFor(kThreads, std::chrono::seconds(60));
    ASSERT_EQ(in_work.size(), kThreads);
    EXPECT_LE(std::count(in_work.begin(), in_work.end(), kNarrow), 1);
    ++served[let_one_go()];
  }
  // A thread's whole time is a quarter. Units are charged when they end: one of the other session's may come first in each round.
  EXPECT_GE(served[kNarrow], kUnits / 5 - 1);
  EXPECT_LE(served[kNarrow], kUnits / 4 + 1);
}

}  // namespace
}  // namespace headrace::testing
