#include "core/shard/checksum.h"

#include <fcntl.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>

#include "core/base/file.h"

namespace headrace {

absl::StatusOr<Checksum128> ChecksumFile(const std::string& path, std::atomic<uint64_t>* bytes_done) {
  HEADRACE_ASSIGN_OR_RETURN(UniqueFd fd, OpenForReading(path));
  HEADRACE_ASSIGN_OR_RETURN(uint64_t size, FileSize(fd.get(), path));
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  constexpr uint64_t kBlockBytes = uint64_t{1} << 20;
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(), &XXH3_freeState);
  XXH3_128bits_reset(state.get());
  const auto block = std::make_unique<char[]>(kBlockBytes);
  for (uint64_t offset = 0; offset < size;) {
    const uint64_t n = std::min(kBlockBytes, size - offset);
    HEADRACE_RETURN_IF_ERROR(ReadAt(fd.get(), block.get(), n, offset, path));
    XXH3_128bits_update(state.get(), block.get(), n);
    offset += n;
    if (bytes_done != nullptr) bytes_done->fetch_add(n, std::memory_order_relaxed);
  }
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state.get()));
  Checksum128 checksum;
  std::copy(std::begin(canonical.digest), std::end(canonical.digest), checksum.begin());
  return checksum;
}

}  // namespace headrace
