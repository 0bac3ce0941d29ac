// Batches on their way to a GPU, with functions in place of CUDA's that note their calls.
#include "client/gpu_copy.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>

#include "tests/client/client_fixture.h"

namespace headrace {
namespace {

using testing::HasSubstr;

std::vector<std::string> calls;
size_t failing;  // the number of the call that fails; 0: none
bool later;      // words are written by WriteWords only
std::vector<std::pair<uint64_t, uint32_t>> words;

int Note(const std::string& call) {
  calls.push_back(call);
  return calls.size() == failing ? 700 : 0;
}

void WriteWords() {
  for (const auto& [to, value] : words) reinterpret_cast<std::atomic<uint32_t>*>(to)->store(value);
  words.clear();
}

const hr_cuda_functions kCuda = {
    [](uint64_t to, const void* from, size_t bytes, void* stream) {
      return Note(std::to_string(to) + " ← " + static_cast<const char*>(from) + ", " + std::to_string(bytes) + " on " +
                  static_cast<const char*>(stream));
    },
    [](void* event, void* stream) { return Note(std::string(static_cast<char*>(event)) + " on " + static_cast<char*>(stream)); },
    [](uint64_t to, uint64_t from, size_t bytes, void* stream) {
      return Note(std::to_string(to) + " ← " + std::to_string(from) + " of the GPU, " + std::to_string(bytes) + " on " +
                  static_cast<const char*>(stream));
    },
    [](void* stream, uint64_t to, uint32_t value, unsigned flags) {
      EXPECT_EQ(flags, 0u);
      const int code = Note(std::string("word on ") + static_cast<char*>(stream));
      if (code == 0) words.emplace_back(to, value);
      if (!later) WriteWords();
      return code;
    }};

char stream[] = "stream", event[] = "event";

TEST(GpuCopy, CopiesEachPieceAndThenRecordsTheEvent) {
  hr_gpu_copy copy = {&kCuda, stream, event, 3, 0, 0, nullptr, {}};
  copy.pieces[0] = {1000, reinterpret_cast<uint64_t>("images"), 600, 0};
  copy.pieces[1] = {2000, 77, 64, 1};
  copy.pieces[2] = {3000, reinterpret_cast<uint64_t>("labels"), 8, 0};
  const std::vector<std::string> all = {"1000 ← images, 600 on stream", "2000 ← 77 of the GPU, 64 on stream",
                                        "3000 ← labels, 8 on stream", "event on stream"};
  for (failing = 0; failing <= 4; ++failing) {
    calls.clear();
    EXPECT_EQ(hr_gpu_copy_start(&copy), failing == 0 ? 0 : 700);
    EXPECT_THAT(calls, testing::ElementsAreArray(all.begin(), all.begin() + static_cast<long>(failing == 0 ? 4 : failing)));
  }
  failing = 0;
}

// Sessions of the GPU engine.
class GpuEngineTest : public testing::Test {
 protected:
  void SetUp() override {
    calls.clear();
    words.clear();
    failing = 0;
    later = false;
    ring_ = hr_session_hold_ring(session_.get());
  }
  void TearDown() override { hr_ring_release(ring_); }

  const hr_open_answer& Info() const { return *hr_session_info(session_.get()); }
  uint32_t SlotOf(const Batch& batch) const {
    return static_cast<uint32_t>(reinterpret_cast<uint64_t>(batch.image()) / Info().device_slot_bytes);
  }
  // Starts a copy of the batch, behind which the GPU gives its slot back.
  int Start(const Batch& batch) {
    const uint32_t slot = SlotOf(batch);
    hr_gpu_copy copy = {&kCuda, stream, event, 2, slot, reinterpret_cast<uint64_t>(hr_ring_released_word(ring_, slot)), ring_, {}};
    copy.pieces[0] = {1000, reinterpret_cast<uint64_t>(batch.image()), 600, 1};
    copy.pieces[1] = {2000, reinterpret_cast<uint64_t>("labels"), 8, 0};
    return hr_gpu_copy_start(&copy);
  }
  void WaitUntilReady(uint32_t slot, uint32_t ticket) {
    auto* first = static_cast<uint8_t*>(hr_ring_released_word(ring_, 0));
    const auto* control = reinterpret_cast<hr_control*>(first - offsetof(hr_control, slots[0].released));
    while (control->slots[slot].ready.load() != ticket) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  uint64_t Reconnections() {
    hr_session_stats stats;
    hr_session_get_stats(session_.get(), &stats);
    return stats.reconnections;
  }

  const std::string address_ = FreshAddress();
  const FakeDaemonProcess daemon_{address_, {"--on-gpu"}};
  const ClientPtr client_ = OpenClient(address_);
  const SessionPtr session_ = OpenSession(client_.get());
  hr_ring* ring_ = nullptr;
};

TEST_F(GpuEngineTest, TensorsInGpuMemoryHaveTheirPlaceThereForAnAddress) {
  hr_session_lease_all(session_.get());
  ASSERT_EQ(Info().device_field, 0u);
  std::vector<Batch> batches(4);
  for (uint32_t i = 0; i < 4; ++i) {
    ASSERT_EQ(batches[i].Next(session_.get()), HR_OK) << hr_last_error();
    EXPECT_EQ(reinterpret_cast<uint64_t>(batches[i].image()), i * Info().device_slot_bytes);
    EXPECT_EQ(batches[i].index(0), 4 * i);
    EXPECT_EQ(batches[i].get().fields[0]->dl_tensor.shape[2], 64);
  }
}

TEST_F(GpuEngineTest, WithoutLeasesOfAllFieldsNothingIsHandedOut) {
  Batch batch;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(batch.Next(session_.get()), HR_FAILED_PRECONDITION);
    EXPECT_THAT(hr_last_error(), HasSubstr("hr_session_lease_all"));
  }
  hr_session_lease_all(session_.get());
  ASSERT_EQ(batch.Next(session_.get()), HR_OK) << hr_last_error();
  EXPECT_EQ(batch.index(0), 0);  // none was lost
}

TEST_F(GpuEngineTest, TheGpuGivesSlotsBackWhateverBecomesOfTheTensors) {
  hr_session_lease_all(session_.get());
  later = true;
  for (int64_t round = 0; round < 5; ++round) {
    for (int64_t i = 0; i < 4; ++i) {
      Batch batch;
      ASSERT_EQ(batch.Next(session_.get()), HR_OK) << hr_last_error();
      EXPECT_EQ(batch.index(0), 4 * (4 * round + i));
      ASSERT_EQ(Start(batch), 0);
    }
    Batch none;
    EXPECT_EQ(none.Next(session_.get(), 60), HR_DEADLINE_EXCEEDED);  // the tensors are gone, the copies are not
    WriteWords();
  }
  EXPECT_EQ(Reconnections(), 0u);
}

TEST_F(GpuEngineTest, ASlotMayBeFilledAgainBeforeItsReleaseIsSeen) {
  hr_session_lease_all(session_.get());
  for (uint32_t i = 0; i < 40; ++i) {
    Batch batch;
    ASSERT_EQ(batch.Next(session_.get()), HR_OK) << hr_last_error();
    EXPECT_EQ(batch.index(0), 4 * i);
    const uint32_t slot = SlotOf(batch);
    ASSERT_EQ(Start(batch), 0);
    WaitUntilReady(slot, Info().first_ticket + i + 4);
  }
  EXPECT_EQ(Reconnections(), 0u);
}

TEST_F(GpuEngineTest, WhenACopyDoesNotStartTheHostGivesTheSlotBack) {
  hr_session_lease_all(session_.get());
  for (int64_t i = 0; i < 40; ++i) {
    Batch batch;
    ASSERT_EQ(batch.Next(session_.get()), HR_OK) << hr_last_error();
    EXPECT_EQ(batch.index(0), 4 * i);
    calls.clear();
    failing = 1 + static_cast<size_t>(i) % 4;
    EXPECT_EQ(Start(batch), 700);
    EXPECT_EQ(calls.size(), failing);
  }
  EXPECT_TRUE(words.empty());
  EXPECT_EQ(Reconnections(), 0u);
}

}  // namespace
}  // namespace headrace
