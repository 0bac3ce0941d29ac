#include <gtest/gtest.h>

#include <string>

#include "core/decode/probe.h"

namespace headrace {
namespace {

// Compiled where dav1d was not found.
TEST(AvifAbsent, AvifIsNamedAndRefused) {
  const std::string file("\0\0\0\x14" "ftypavif\0\0\0\0avif", 20);
  const absl::StatusOr<ImageInfo> info = ProbeImage({reinterpret_cast<const uint8_t*>(file.data()), file.size()});
  EXPECT_EQ(info.status(), absl::InvalidArgumentError("AVIF: this build has no AVIF reader"));
}

}  // namespace
}  // namespace headrace
