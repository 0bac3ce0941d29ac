// Starting copies into GPU memory, with functions that note their calls in place of CUDA's.
#include "client/gpu_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace headrace {
namespace {

std::vector<std::string> calls;
size_t failing;  // the number of the call that fails

int Note(const std::string& call) {
  calls.push_back(call);
  return calls.size() == failing ? 700 : 0;
}

const hr_cuda_functions kCuda = {
    [](uint64_t to, const void* from, size_t bytes, void* stream) {
      return Note(std::to_string(to) + " ← " + static_cast<const char*>(from) + ", " + std::to_string(bytes) + " on " +
                  static_cast<const char*>(stream));
    },
    [](void* event, void* stream) { return Note(std::string(static_cast<char*>(event)) + " on " + static_cast<char*>(stream)); }};

TEST(GpuCopy, CopiesEachPieceAndThenRecordsTheEvent) {
  char stream[] = "stream", event[] = "event";
  hr_gpu_copy copy = {&kCuda, stream, event, 2, {}};
  copy.pieces[0] = {1000, "images", 600};
  copy.pieces[1] = {2000, "labels", 8};
  const std::vector<std::string> all = {"1000 ← images, 600 on stream", "2000 ← labels, 8 on stream", "event on stream"};
  for (failing = 0; failing <= 3; ++failing) {
    calls.clear();
    EXPECT_EQ(hr_gpu_copy_start(&copy), failing == 0 ? 0 : 700);
    EXPECT_THAT(calls, testing::ElementsAreArray(all.begin(), all.begin() + static_cast<long>(failing == 0 ? 3 : failing)));
  }
}

}  // namespace
}  // namespace headrace
