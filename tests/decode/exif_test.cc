#include "core/decode/exif.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace headrace {
namespace {

// Builds TIFF blocks in either byte order.
class Tiff {
 public:
  explicit Tiff(bool big_endian) : big_endian_(big_endian) {
    bytes_ = big_endian ? "MM" : "II";
    U16(42);
    U32(8);
  }
  Tiff& U16(unsigned value) { return Number(value, 2); }
  Tiff& U32(unsigned value) { return Number(value, 4); }
  Tiff& Entry(unsigned tag, unsigned type, unsigned count) { return U16(tag).U16(type).U32(count); }
  // The orientation as one SHORT, left-aligned in its four bytes.
  Tiff& Orientation(unsigned value) { return Entry(274, 3, 1).U16(value).U16(0); }
  Tiff& Raw(const std::string& bytes) {
    bytes_ += bytes;
    return *this;
  }
  int Read() const {
    return ExifOrientation({reinterpret_cast<const uint8_t*>(bytes_.data()), bytes_.size()});
  }
  const std::string& bytes() const { return bytes_; }

 private:
  Tiff& Number(unsigned value, int count) {
    for (int i = 0; i < count; ++i) {
      const int shift = 8 * (big_endian_ ? count - 1 - i : i);
      bytes_.push_back(static_cast<char>(value >> shift & 0xFF));
    }
    return *this;
  }
  bool big_endian_;
  std::string bytes_;
};

class Exif : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(ByteOrders, Exif, ::testing::Bool(), [](const auto& info) {
  return info.param ? "big_endian" : "little_endian";
});

TEST_P(Exif, GivesTheEightValuesAndOneForOtherNumbers) {
  for (unsigned value = 0; value <= 300; ++value) {
    const int expected = value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
    EXPECT_EQ(Tiff(GetParam()).U16(1).Orientation(value).U32(0).Read(), expected) << value;
  }
}

TEST_P(Exif, ReadsWholeNumbersOfAllTypesButNotTextOrBytes) {
  const auto inlined = [](unsigned type) {
    return Tiff(GetParam()).U16(1).Entry(274, type, 1).U32(6).U32(0).Read();
  };
  EXPECT_EQ(inlined(4), 6) << "LONG";
  EXPECT_EQ(inlined(9), 6) << "SLONG";
  EXPECT_EQ(inlined(13), 6) << "IFD";
  const auto first_byte = [](unsigned type) {
    return Tiff(GetParam())
        .U16(1)
        .Entry(274, type, 1)
        .Raw(std::string("\6\0\0\0", 4))
        .U32(0)
        .Read();
  };
  EXPECT_EQ(first_byte(6), 6) << "SBYTE";
  EXPECT_EQ(first_byte(1), 1) << "BYTE";
  EXPECT_EQ(first_byte(2), 1) << "ASCII";
  EXPECT_EQ(first_byte(7), 1) << "UNDEFINED";
  // 18 / 3 and 13 / 2 behind the directory, which ends at 26.
  const auto rational = [](unsigned top, unsigned bottom) {
    return Tiff(GetParam()).U16(1).Entry(274, 5, 1).U32(26).U32(0).U32(top).U32(bottom).Read();
  };
  EXPECT_EQ(rational(18, 3), 6);
  EXPECT_EQ(rational(13, 2), 1);
  EXPECT_EQ(rational(6, 0), 1);
  EXPECT_EQ(Tiff(GetParam()).U16(1).Entry(274, 11, 1).U32(0x40C00000).U32(0).Read(), 6)
      << "FLOAT 6.0";
}

TEST_P(Exif, IsAbsentWithoutTheTagOrWithoutValues) {
  EXPECT_EQ(Tiff(GetParam()).U16(0).U32(0).Read(), 0);
  EXPECT_EQ(Tiff(GetParam()).U16(1).Entry(271, 3, 1).U32(0).U32(0).Read(), 0);
  EXPECT_EQ(Tiff(GetParam()).U16(1).Entry(274, 3, 0).U32(0).U32(0).Read(), 0) << "count 0";
  EXPECT_EQ(Tiff(GetParam()).U16(1).Entry(274, 99, 1).U32(6).U32(0).Read(), 0) << "unknown type";
  EXPECT_EQ(ExifOrientation({}), 0);
}

TEST_P(Exif, TakesTheFirstOfTwo) {
  EXPECT_EQ(Tiff(GetParam()).U16(2).Orientation(6).Orientation(3).U32(0).Read(), 6);
  EXPECT_EQ(Tiff(GetParam()).U16(1).Entry(274, 3, 2).U16(6).U16(3).U32(0).Read(), 6);
}

TEST_P(Exif, EndsWhereTheDirectoryIsCutOff) {
  EXPECT_EQ(Tiff(GetParam()).U16(60000).Orientation(3).Read(), 3) << "found before the end";
  const std::string whole = Tiff(GetParam()).U16(1).Orientation(3).bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    const int found = ExifOrientation({reinterpret_cast<const uint8_t*>(whole.data()), size});
    EXPECT_EQ(found, size == 0 ? 0 : size < 8 ? 1 : 0) << size;
  }
}

TEST_P(Exif, StopsAtAValueOutsideTheBlockButSkipsOneThatCannotFit) {
  EXPECT_EQ(Tiff(GetParam()).U16(2).Entry(271, 2, 20).U32(5000).Orientation(8).U32(0).Read(), 0);
  EXPECT_EQ(Tiff(GetParam()).U16(2).Entry(271, 2, 5000).U32(26).Orientation(8).U32(0).Read(), 8);
}

TEST(ExifBlock, MayCarryItsIdentifierTwice) {
  const std::string id("Exif\0\0", 6);
  const std::string block = id + id + Tiff(true).U16(1).Orientation(5).U32(0).bytes();
  EXPECT_EQ(ExifOrientation({reinterpret_cast<const uint8_t*>(block.data()), block.size()}), 5);
}

TEST(ExifBlock, OfAnotherKindIsIgnored) {
  std::string block = Tiff(false).U16(1).Orientation(5).U32(0).bytes();
  block[0] = 'X';
  EXPECT_EQ(ExifOrientation({reinterpret_cast<const uint8_t*>(block.data()), block.size()}), 1);
}

TEST(ExifBlock, SurvivesArbitraryBytes) {
  std::mt19937 random(3);
  for (int i = 0; i < 20000; ++i) {
    std::string block = Tiff(i % 2 == 0)
                            .U16(3)
                            .Orientation(6)
                            .Entry(282, 5, 1)
                            .U32(50)
                            .Orientation(3)
                            .U32(0)
                            .bytes();
    for (int k = 0; k < 4; ++k) block[random() % block.size()] = static_cast<char>(random());
    block.resize(random() % (block.size() + 1));
    const int found =
        ExifOrientation({reinterpret_cast<const uint8_t*>(block.data()), block.size()});
    ASSERT_TRUE(found >= 0 && found <= 8);
  }
}

int Xmp(const std::string& text) {
  return XmpOrientation({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

TEST(XmpPacket, GivesTheFirstOrientation) {
  EXPECT_EQ(Xmp("<x tiff:Orientation=\"6\"/>"), 6);
  EXPECT_EQ(Xmp("<tiff:Orientation>8</tiff:Orientation> tiff:Orientation=\"3\""), 8);
  EXPECT_EQ(Xmp("tiff:Orientation='6' tiff:Orientation=\"3\""), 3) << "single quotes are no match";
  EXPECT_EQ(Xmp("tiff:Orientation=\"0\" tiff:Orientation=\"3\""), 1);
  EXPECT_EQ(Xmp("tiff:Orientation=\""), 1);
  EXPECT_EQ(Xmp(""), 1);
}

}  // namespace
}  // namespace headrace
