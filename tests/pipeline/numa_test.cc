// Threads with homes on several memory nodes, on whatever machine: the nodes' processors are this
// process's own.
#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "core/batch/order.h"
#include "core/pipeline/pipeline.h"
#include "tests/pipeline/fake_client.h"
#include "tests/support/tiny_dataset.h"

namespace headrace::testing {
namespace {

constexpr uint64_t kNumSamples = 400;

class NumaTest : public ::testing::Test {
 protected:
  NumaTest() : tiny_({.samples = kNumSamples}) {
    for (uint64_t i = 0; i < kNumSamples; ++i)
      tiny_.Damage(i);  // so that each is reported, by the thread that read it
    PipelineOptions options;
    options.decode_threads = 4;
    options.host_memory_bytes = uint64_t{1} << 30;
    NumaNode node = ReadNumaNodes("/nowhere")[0];
    for (node.id = 2; node.id < 4; ++node.id) options.numa_nodes.push_back(node);
    options.on_bad_sample = [this](const std::string&) {
      std::array<char, 16> name;
      pthread_getname_np(pthread_self(), name.data(), name.size());
      std::lock_guard lock(mutex_);
      ++samples_of_[name.data()];
    };
    pipeline_ = Pipeline::Create(options);
  }
  ~NumaTest() override { pipeline_.reset(); }

  SessionSpec Spec(int node) {
    SessionSpec spec = TinySpec(tiny_.Open(), 4);
    spec.on_bad_sample = OnBadSample::kSkip;
    spec.numa_node = node;
    return spec;
  }
  void TakeAnEpoch(FakeClient* client) {
    for (uint64_t i = 0; i < kNumSamples / 4; ++i) {
      const auto lease = client->Next();
      ASSERT_TRUE(lease);
      EXPECT_EQ(lease->bad_samples, 4u);
      client->Release(*lease);
    }
  }

  TinyDataset tiny_;
  std::mutex mutex_;
  std::map<std::string, uint64_t> samples_of_;
  std::unique_ptr<Pipeline> pipeline_;
};

TEST_F(NumaTest, ASessionIsServedByItsNodesThreads) {
  const std::array<std::set<std::string>, 2> threads = {{{"hr-decode-0", "hr-decode-1"}, {"hr-decode-2", "hr-decode-3"}}};
  for (const int home : {0, 1, 0}) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // so that all threads are asleep, and have told of what they did
    {
      std::lock_guard lock(mutex_);
      samples_of_.clear();
    }
    {
      SessionSpec spec = Spec(2 + home);
      spec.max_threads = 1;  // so that one at home is idle whenever there is work
      FakeClient client(pipeline_.get(), spec);
      TakeAnEpoch(&client);
    }
    std::lock_guard lock(mutex_);
    uint64_t near = 0, all = 0;
    for (const auto& [name, samples] : samples_of_) {
      all += samples;
      if (threads[static_cast<size_t>(home)].count(name) > 0) near += samples;
    }
    EXPECT_GE(all, kNumSamples / 2);  // a batch is there before its samples are told of
    EXPECT_GE(near, all * 7 / 10);  // without a preference it would be half of them
  }
}

TEST_F(NumaTest, AllThreadsHelpWhereThereIsWork) {
  for (const int node : {2, 3, -1, 77}) {
    FakeClient client(pipeline_.get(), Spec(node)), other(pipeline_.get(), Spec(2));
    TakeAnEpoch(&client);
    TakeAnEpoch(&other);
  }
}

}  // namespace
}  // namespace headrace::testing
