#include "core/base/numa.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary_folder.h"

namespace headrace {
namespace {

class NumaTest : public ::testing::Test {
 protected:
  void Add(int id, const std::string& processors) {
    const std::string node = root_.path() + "/node" + std::to_string(id);
    std::filesystem::create_directory(node);
    std::ofstream(node + "/cpulist") << processors << "\n";
  }
  std::vector<NumaNode> Read() { return ReadNumaNodes(root_.path()); }

  testing::TemporaryFolder root_;
};

TEST_F(NumaTest, ReadsTheProcessorsThatThisProcessMayUse) {
  cpu_set_t own;
  ASSERT_EQ(sched_getaffinity(0, sizeof own, &own), 0);
  int first = 0;
  while (!CPU_ISSET(first, &own)) ++first;
  Add(0, std::to_string(first) + ",900-910");
  Add(2, "0-1023");
  Add(3, "1000,1002-1003");  // none of ours
  Add(5, "");                // memory alone
  const std::vector<NumaNode> nodes = Read();
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].id, 0);
  EXPECT_EQ(CPU_COUNT(&nodes[0].processors), 1);
  EXPECT_TRUE(CPU_ISSET(first, &nodes[0].processors));
  EXPECT_EQ(nodes[1].id, 2);
  EXPECT_TRUE(CPU_EQUAL(&nodes[1].processors, &own));
}

TEST_F(NumaTest, IsOneNodeWhereThereIsNoMore) {
  EXPECT_EQ(Read().size(), 1u);
  Add(0, "0-1023");
  EXPECT_EQ(Read().size(), 1u);
  Add(1, "rubbish");
  EXPECT_EQ(Read().size(), 1u);
  EXPECT_EQ(ReadNumaNodes("/nowhere").size(), 1u);
}

}  // namespace
}  // namespace headrace
