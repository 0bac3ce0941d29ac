#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "core/pipeline/pipeline.h"
#include "tests/pipeline/fake_client.h"
#include "tests/support/tiny_dataset.h"

namespace headrace::testing {
namespace {

// Takes what is ready from every client in turn until `batches` have been taken together; how many each had.
std::vector<int> Serve(std::vector<std::unique_ptr<FakeClient>>* clients, int batches) {
  std::vector<int> taken(clients->size());
  while (batches > 0) {
    for (size_t i = 0; i < clients->size(); ++i) {
      while (auto lease = (*clients)[i]->Poll()) {
        (*clients)[i]->Release(*lease);
        ++taken[i];
        --batches;
      }
    }
  }
  return taken;
}

class FairnessTest : public ::testing::Test {
 protected:
  FairnessTest() : tiny_({.samples = 400}) {
    PipelineOptions options;
    options.decode_threads = 2;
    options.host_memory_bytes = uint64_t{1} << 30;
    pipeline_ = Pipeline::Create(options);
  }
  std::unique_ptr<FakeClient> Client(int batch_size, int max_threads = 0) {
    SessionSpec spec = TinySpec(tiny_.Open(), batch_size);
    spec.max_threads = max_threads;
    return std::make_unique<FakeClient>(pipeline_.get(), spec);
  }

  TinyDataset tiny_;
  std::unique_ptr<Pipeline> pipeline_;
};

TEST_F(FairnessTest, EightHungrySessionsGetEqualShares) {
  std::vector<std::unique_ptr<FakeClient>> clients;
  for (int i = 0; i < 8; ++i) clients.push_back(Client(16));
  Serve(&clients, 80);
  const std::vector<int> taken = Serve(&clients, 1600);
  const auto [least, most] = std::minmax_element(taken.begin(), taken.end());
  EXPECT_GE(*least, 180);
  EXPECT_LE(*most, 220);
}

TEST_F(FairnessTest, SharesAreOfThreadTimeNotOfBatches) {
  std::vector<std::unique_ptr<FakeClient>> clients;
  clients.push_back(Client(8));
  clients.push_back(Client(32));
  Serve(&clients, 50);
  const std::vector<int> taken = Serve(&clients, 1000);
  EXPECT_NEAR(static_cast<double>(taken[0]) / taken[1], 4, 0.6);
}

// A session that comes later does not make up for what others had before it came.
TEST_F(FairnessTest, ANewcomerDoesNotStarveTheOthers) {
  std::vector<std::unique_ptr<FakeClient>> clients;
  clients.push_back(Client(16));
  Serve(&clients, 1500);
  clients.push_back(Client(16));
  Serve(&clients, 100);
  const std::vector<int> taken = Serve(&clients, 600);
  EXPECT_NEAR(taken[0], 300, 45);
}

TEST_F(FairnessTest, ASleeperDoesNotStarveTheOthers) {
  std::vector<std::unique_ptr<FakeClient>> clients;
  clients.push_back(Client(16));
  std::vector<std::unique_ptr<FakeClient>> sleeper;
  sleeper.push_back(Client(16));
  Serve(&clients, 1500);  // its ring is full meanwhile
  clients.push_back(std::move(sleeper[0]));
  Serve(&clients, 100);
  const std::vector<int> taken = Serve(&clients, 600);
  EXPECT_NEAR(taken[0], 300, 45);
}

TEST_F(FairnessTest, ASessionOfOneThreadLeavesTheOthersToTheRest) {
  PipelineOptions options;
  options.decode_threads = 4;
  options.host_memory_bytes = uint64_t{1} << 30;
  pipeline_ = Pipeline::Create(options);
  std::vector<std::unique_ptr<FakeClient>> clients;
  clients.push_back(Client(16, 1));
  clients.push_back(Client(16));
  const std::vector<int> taken = Serve(&clients, 400);
  EXPECT_GT(taken[0], 0);
  EXPECT_GT(taken[1], taken[0]);
}

}  // namespace
}  // namespace headrace::testing
