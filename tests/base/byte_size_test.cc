#include "core/base/byte_size.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(Bytes, AreReadWithBinaryAndDecimalUnits) {
  EXPECT_EQ(*ParseBytes("0"), 0u);
  EXPECT_EQ(*ParseBytes("100000"), 100000u);
  EXPECT_EQ(*ParseBytes("512MiB"), 512u << 20);
  EXPECT_EQ(*ParseBytes("4 GiB"), 4ull << 30);
  EXPECT_EQ(*ParseBytes("4G"), 4ull << 30);
  EXPECT_EQ(*ParseBytes("4gib"), 4ull << 30);
  EXPECT_EQ(*ParseBytes("1.5GB"), 1500000000u);
  EXPECT_EQ(*ParseBytes("18446744073709551615"), UINT64_MAX);
}

TEST(Bytes, AreRefusedWhenTheyAreNoSize) {
  for (const char* text : {"", "MiB", "-1", "1e3", "1 MiB!", "1.2.3GB", "18446744073709551616", "20000000000TiB", "0x10",
                           "nan", "inf", "4 gb b", " 4"}) {
    EXPECT_FALSE(ParseBytes(text).ok()) << text;
  }
}

TEST(Bytes, AreWrittenSoThatReadingThemGivesTheSame) {
  for (const uint64_t bytes : {0ull, 1ull, 1023ull, 1024ull, 1536ull, 5ull << 30, (5ull << 30) + 1, 3ull << 40}) {
    EXPECT_EQ(*ParseBytes(FormatBytes(bytes)), bytes) << FormatBytes(bytes);
  }
}

}  // namespace
}  // namespace headrace
