#include "core/base/philox.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

// Known answers published with the authors' Random123 library (kat_vectors, philox4x32 10).
TEST(Philox, GivesThePublishedKnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UnitDoubleStaysBelowOne) {
  EXPECT_EQ(UnitDouble(0, 0), 0.0);
  EXPECT_LT(UnitDouble(0xffffffff, 0xffffffff), 1.0);
}

}  // namespace
}  // namespace headrace
