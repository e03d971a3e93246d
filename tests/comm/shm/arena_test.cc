#include "dtensor/comm/shm/arena.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/comm/socket.h"
#include "dtensor/tests/support/forked.h"

namespace dtensor::comm::shm {
namespace {

constexpr int64_t kBytes = 64 * kPageBytes;

bool is_zero(const void* data, int64_t bytes) {
  const auto* p = static_cast<const char*>(data);
  return std::all_of(p, p + bytes, [](char c) { return c == 0; });
}

TEST(Arena, GivesZeroedPagesThatOthersSee) {
  Arena arena(kBytes, 0);
  auto* data = static_cast<char*>(arena.allocate(3 * kPageBytes - 5, Arena::For::kUsers));
  ASSERT_NE(data, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % kPageBytes, 0U);
  EXPECT_TRUE(is_zero(data, 3 * kPageBytes));
  const Mapping other(arena.fd(), arena.size_bytes(), Mapping::Access::kRead);
  data[4097] = 7;
  EXPECT_EQ(static_cast<char>(other.data()[arena.offset_of(data, 1) + 4097]), 7);
}

TEST(Arena, GivesBackWhatIsFreedAsZeros) {
  Arena arena(kBytes, 0);
  std::vector<void*> blocks;
  for (int k = 0; k < 4; ++k) {
    blocks.push_back(arena.allocate(kBytes / 4, Arena::For::kUsers));
    std::fill_n(static_cast<char*>(blocks.back()), kBytes / 4, static_cast<char>(k + 1));
  }
  EXPECT_EQ(arena.allocate(1, Arena::For::kUsers), nullptr);
  // In an order that joins blocks with both neighbours.
  for (const size_t k : {0, 2, 1, 3}) arena.deallocate(blocks[k], kBytes / 4);
  void* all = arena.allocate(kBytes, Arena::For::kUsers);
  ASSERT_EQ(all, arena.base());
  EXPECT_TRUE(is_zero(all, kBytes));
}

TEST(Arena, HasNoRoomForMoreThanItsSize) {
  Arena arena(kBytes, 0);
  EXPECT_EQ(arena.allocate(kBytes + 1, Arena::For::kUsers), nullptr);
  EXPECT_EQ(arena.allocate(-1, Arena::For::kUsers), nullptr);
  EXPECT_NE(arena.allocate(0, Arena::For::kUsers), nullptr);
}

TEST(Arena, HasRoomForUsersAndItsOwnThatNeitherTakesFromTheOther) {
  Arena arena(4 * kPageBytes, 2 * kPageBytes);
  EXPECT_EQ(arena.allocate(5 * kPageBytes, Arena::For::kUsers), nullptr);
  void* all = arena.allocate(4 * kPageBytes, Arena::For::kUsers);
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(arena.allocate(1, Arena::For::kUsers), nullptr);
  void* own = arena.allocate(2 * kPageBytes, Arena::For::kOwn);
  ASSERT_EQ(own, arena.base());
  EXPECT_EQ(arena.allocate(1, Arena::For::kOwn), nullptr);
  // Next to each other, and still two.
  arena.deallocate(all, 4 * kPageBytes);
  arena.deallocate(own, 2 * kPageBytes);
  EXPECT_EQ(arena.allocate(5 * kPageBytes, Arena::For::kUsers), nullptr);
  EXPECT_EQ(arena.allocate(3 * kPageBytes, Arena::For::kOwn), nullptr);
  EXPECT_EQ(arena.allocate(4 * kPageBytes, Arena::For::kUsers), all);
}

TEST(Arena, OfAnotherIsMappedOnlyWhereItCannotShrink) {
  using internal::Fd;
  const Arena arena(kBytes, 0);
  EXPECT_EQ(map_given(arena.fd(), kBytes).size_bytes(), kBytes);
  EXPECT_THROW(map_given(arena.fd(), kBytes + kPageBytes), Error);
  const Fd unsealed(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), kBytes), 0);
  EXPECT_THROW(map_given(unsealed, kBytes), Error);
  ASSERT_EQ(fcntl(unsealed.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_THROW(map_given(unsealed, kBytes), Error);
  ASSERT_EQ(fcntl(unsealed.get(), F_ADD_SEALS, F_SEAL_GROW), 0);
  EXPECT_EQ(map_given(unsealed, kBytes).size_bytes(), kBytes);
  std::string path = std::string(::testing::TempDir()) + "/memory.XXXXXX";
  const Fd file(mkstemp(path.data()));
  ASSERT_EQ(ftruncate(file.get(), kBytes), 0);
  EXPECT_THROW(map_given(file, kBytes), Error);
}

TEST(Arena, IsNoProgramWhereTheSystemKnowsThat) {
  constexpr unsigned kNoExecSeal = 0x8;  // Linux 6.3
  constexpr int kExecSealed = 0x20;
  const internal::Fd probe(memfd_create("test", MFD_CLOEXEC | kNoExecSeal));
  if (!probe) GTEST_SKIP() << "this kernel does not";
  const Arena arena(kBytes, 0);
  EXPECT_NE(fcntl(arena.fd().get(), F_GET_SEALS) & kExecSealed, 0);
}

TEST(Arena, KnowsWhatLiesInIt) {
  Arena arena(kBytes, 0);
  const std::byte* base = arena.base();
  EXPECT_EQ(arena.offset_of(base, kBytes), 0);
  EXPECT_EQ(arena.offset_of(base + 100, kBytes - 100), 100);
  EXPECT_EQ(arena.offset_of(base + 100, kBytes - 99), -1);
  int other = 0;
  EXPECT_EQ(arena.offset_of(&other, 4), -1);
}

// What it lets go of is in use where it was forked from, and what it would take, too.
TEST(Arena, AForkedProcessNeitherGivesBackNorTakes) {
  Arena arena(kBytes, kBytes);
  for (const auto purpose : {Arena::For::kUsers, Arena::For::kOwn}) {
    auto* data = static_cast<char*>(arena.allocate(3 * kPageBytes, purpose));
    std::fill_n(data, 3 * kPageBytes, 'x');
    const int gave = testing::status_of_fork([&] {
      arena.deallocate(data, 3 * kPageBytes);
      return arena.allocate(kPageBytes, purpose) == nullptr ? 0 : 1;
    });
    EXPECT_EQ(gave, 0);
    EXPECT_EQ(std::count(data, data + 3 * kPageBytes, 'x'), 3 * kPageBytes);
    arena.deallocate(data, 3 * kPageBytes);
    EXPECT_TRUE(is_zero(data, 3 * kPageBytes));
  }
  // One of its own is as any other.
  const int own = testing::status_of_fork([&] {
    Arena mine(kBytes, 0);
    void* data = mine.allocate(kBytes, Arena::For::kUsers);
    if (data == nullptr) return 1;
    mine.deallocate(data, kBytes);
    return mine.allocate(kBytes, Arena::For::kUsers) == data ? 0 : 2;
  });
  EXPECT_EQ(own, 0);
}

}  // namespace
}  // namespace dtensor::comm::shm
