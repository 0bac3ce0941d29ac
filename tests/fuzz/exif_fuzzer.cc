// EXIF blocks and XMP packets alone: deeper than whole image files let a fuzzer come.
#include <vector>

#include "core/decode/exif.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace;  // NOLINT
  const std::vector<uint8_t> block(data, data + size);  // of its own, so that a byte behind it is found
  const int exif = ExifOrientation(block), xmp = XmpOrientation(block);
  fuzz::Check(exif >= 0 && exif <= 8);
  fuzz::Check(xmp >= 1 && xmp <= 8);
  // With and without the marker's name in front it says the same.
  static constexpr uint8_t kName[] = {'E', 'x', 'i', 'f', 0, 0};
  if (size >= sizeof kName && std::equal(kName, kName + sizeof kName, data)) return 0;
  std::vector<uint8_t> named(kName, kName + sizeof kName);
  named.insert(named.end(), data, data + size);
  fuzz::Check(ExifOrientation(named) == exif);
  return 0;
}
