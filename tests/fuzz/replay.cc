// The ordinary test of a fuzzer: its corpus, and mutations of it.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <random>

#include "tests/support/test_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace headrace {
namespace {

using Bytes = std::vector<uint8_t>;

// Stays where the test ran if it is the input's end.
constexpr char kLastInput[] = HEADRACE_FUZZER ".input";

void RunInput(const Bytes& input) {
  std::ofstream(kLastInput, std::ios::binary)
      .write(reinterpret_cast<const char*>(input.data()), static_cast<std::streamsize>(input.size()));
  LLVMFuzzerTestOneInput(input.data(), input.size());
}

// One change: a flipped bit, a byte, a piece of another input over or between the bytes, or a piece less.
void Mutate(const std::vector<Bytes>& corpus, std::mt19937* random, Bytes* input) {
  const auto below = [&](size_t bound) { return static_cast<ptrdiff_t>((*random)() % bound); };
  if (input->empty()) input->push_back(0);
  const auto at = input->begin() + below(input->size());
  const Bytes& other = corpus[static_cast<size_t>(below(corpus.size()))];
  const ptrdiff_t from = below(other.size() + 1);
  const ptrdiff_t length = std::min(1 + below(16), static_cast<ptrdiff_t>(other.size()) - from);
  switch (below(5)) {
    case 0:
      *at ^= static_cast<uint8_t>(1 << below(8));
      break;
    case 1:
      *at = static_cast<uint8_t>((*random)());
      break;
    case 2:
      std::copy_n(other.begin() + from, std::min(length, input->end() - at), at);
      break;
    case 3:
      input->insert(at, other.begin() + from, other.begin() + from + length);
      break;
    default:
      input->erase(at, at + std::min(1 + below(16), input->end() - at));
  }
}

TEST(Corpus, AndMutationsOfItDoNoHarm) {
  const std::vector<Bytes> corpus = testing::FilesBelow(HEADRACE_CORPUS);
  ASSERT_FALSE(corpus.empty());
  for (const Bytes& input : corpus) RunInput(input);
  std::mt19937 random(1);
  for (int round = 0; round < 2000 / TEST_SLOWDOWN; ++round) {
    Bytes input = corpus[random() % corpus.size()];
    for (uint32_t changes = 1 + random() % 4; changes > 0; --changes) Mutate(corpus, &random, &input);
    RunInput(input);
  }
  std::remove(kLastInput);
}

}  // namespace
}  // namespace headrace
