#include "core/slot/host_ring.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace headrace {
namespace {

constexpr uint64_t kSlotBytes = 1 << 20;

uint64_t AllocatedBytes(const HostRing& ring) {
  struct stat info;
  EXPECT_EQ(::fstat(ring.fd(), &info), 0);
  return static_cast<uint64_t>(info.st_blocks) * 512;
}

std::unique_ptr<HostRing> MakeRing(int slots) {
  auto ring = HostRing::Create(slots, kSlotBytes);
  EXPECT_TRUE(ring.ok()) << ring.status();
  return *std::move(ring);
}

TEST(HostRing, BeginsWithAControlPage) {
  const auto ring = MakeRing(3);
  EXPECT_EQ(ring->control()->fixed.magic, HR_RING_MAGIC);
  EXPECT_EQ(ring->control()->fixed.layout_version, HR_LAYOUT_VERSION);
  EXPECT_EQ(ring->control()->fixed.num_slots, 3u);
  EXPECT_EQ(ring->control()->slots[2].ready.load(), 0u);
  EXPECT_EQ(ring->total_bytes(), HR_CONTROL_BYTES + 3 * kSlotBytes);
  EXPECT_EQ(ring->slot(2), reinterpret_cast<uint8_t*>(ring->control()) + HR_CONTROL_BYTES + 2 * kSlotBytes);
}

TEST(HostRing, TakesMemorySlotBySlot) {
  const auto ring = MakeRing(3);
  EXPECT_EQ(AllocatedBytes(*ring), HR_CONTROL_BYTES);
  ASSERT_TRUE(ring->Populate(0).ok());
  EXPECT_EQ(AllocatedBytes(*ring), HR_CONTROL_BYTES + kSlotBytes);
  ring->slot(0)[5] = 77;
  ASSERT_TRUE(ring->Populate(0).ok());
  EXPECT_EQ(ring->slot(0)[5], 77);
  ASSERT_TRUE(ring->Populate(2).ok());
  EXPECT_EQ(AllocatedBytes(*ring), HR_CONTROL_BYTES + 2 * kSlotBytes);
  EXPECT_EQ(ring->populated_bytes(), HR_CONTROL_BYTES + 2 * kSlotBytes);
}

TEST(HostRing, TakesItsMemoryFromTheNodeThatIsAskedFor) {
  for (const int node : {-1, 0, 700}) {  // the last one is not there: then it is any
    const auto ring = HostRing::Create(2, kSlotBytes, node);
    ASSERT_TRUE(ring.ok());
    ASSERT_TRUE((*ring)->Populate(1).ok());
    int policy = -1;
    std::array<unsigned long, 16> mask = {};
    ASSERT_EQ(
        ::syscall(SYS_get_mempolicy, &policy, mask.data(), 1024, (*ring)->slot(1), MPOL_F_ADDR), 0);
    EXPECT_EQ(policy, node == 0 ? MPOL_PREFERRED : MPOL_DEFAULT);
    EXPECT_EQ(mask[0], node == 0 ? 1u : 0u);
  }
}

TEST(HostRing, CannotBeResizedOrSealedByAClient) {
  const auto ring = MakeRing(1);
  EXPECT_EQ(::ftruncate(ring->fd(), 100), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(ring->fd(), 1 << 30), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::fcntl(ring->fd(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_NE(::fcntl(ring->fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(HostRing, DiscardFreesTheMemoryUnderAForeignMapping) {
  auto ring = MakeRing(2);
  ASSERT_TRUE(ring->Populate(0).ok());
  std::memset(ring->slot(0), 9, kSlotBytes);
  const uint64_t bytes = ring->total_bytes();
  void* map = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, ring->fd(), 0);
  ASSERT_NE(map, MAP_FAILED);
  const auto* client = static_cast<const uint8_t*>(map) + HR_CONTROL_BYTES;
  EXPECT_EQ(client[100], 9);
  ring->Discard();
  EXPECT_EQ(AllocatedBytes(*ring), 0u);
  ring.reset();
  EXPECT_EQ(client[100], 0);
  ::munmap(map, bytes);
}

TEST(HostRing, DestroyingItKeepsAForeignMapping) {
  auto ring = MakeRing(1);
  ASSERT_TRUE(ring->Populate(0).ok());
  ring->slot(0)[0] = 42;
  const uint64_t bytes = ring->total_bytes();
  void* map = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, ring->fd(), 0);
  ASSERT_NE(map, MAP_FAILED);
  ring.reset();
  EXPECT_EQ(static_cast<const uint8_t*>(map)[HR_CONTROL_BYTES], 42);
  ::munmap(map, bytes);
}

TEST(HostRing, AnImpossibleSizeIsAStatus) {
  const auto ring = HostRing::Create(64, uint64_t{1} << 57);
  EXPECT_TRUE(absl::IsResourceExhausted(ring.status())) << ring.status();
}

}  // namespace
}  // namespace headrace
