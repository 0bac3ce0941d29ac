#include "core/pipeline/disk_share.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(DiskShare, IsOfTheNewestWork) {
  DiskShare disk;
  EXPECT_EQ(disk.share(), 0);
  disk.Worked(1000, 100);
  EXPECT_DOUBLE_EQ(disk.share(), 0.9);
  for (int i = 0; i < 1000; ++i) disk.Worked(2000, 2000);
  EXPECT_LT(disk.share(), 0.01);
  for (int i = 0; i < 1000; ++i) disk.Worked(8000, 2000);
  EXPECT_NEAR(disk.share(), 0.75, 0.01);
}

}  // namespace
}  // namespace headrace
